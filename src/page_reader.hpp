// Reads memory that the program goes on writing, and again what it has written meanwhile.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <iterator>

#include "allod/base/base.hpp"

namespace allod {

// /proc/self/pagemap tells which pages are there: the rest holds nothing, and may be a guard. Pages
// are copied by the system, so that it does not matter if they go away. Those that were read are
// protected by a userfaultfd, and the system takes that off again when the program writes to them
// (Linux 6.7). One at a time, as it works with static memory.
class PageReader {
 public:
  // Can the memory of this process be read like that?
  [[nodiscard]] static bool works() noexcept {
    Address word = 1;
    Address copied = 0;
    return copy(address_of(&word), &copied, sizeof copied) == sizeof copied && copied == word;
  }

  // `watches`: it is to be told what is written, in a thread whose descriptors no child inherits,
  // or memory would still be protected when this is gone.
  PageReader(std::size_t page_bytes, bool watches) noexcept
      : pagemap_{raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/pagemap"),
                             O_RDONLY | O_CLOEXEC)},
        watch_{watches ? open_watch() : -1},
        page_{page_bytes} {}
  ~PageReader() {
    if (pagemap_ >= 0) raw_syscall(SYS_close, pagemap_);
    if (watch_ >= 0) raw_syscall(SYS_close, watch_);
  }
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  // Does the system tell what was written since it was read?
  [[nodiscard]] bool can_watch() const noexcept { return watch_ >= 0; }
  // Is it told what is written in a mapping? Not if the program itself watches that.
  [[nodiscard]] bool watch(Address begin, Address end) noexcept {
    if (!can_watch()) return false;
    uffdio_register mapping{};
    mapping.range = {begin, end - begin};
    mapping.mode = UFFDIO_REGISTER_MODE_WP;
    return control(UFFDIO_REGISTER, &mapping);
  }

  // Hands what is in the pages of [begin, end) that are there, and that `skip(address)` does not
  // leave out, to `look(words, count)`. If they are `watched`, those alone that were written since
  // they were read last.
  template <class Skip, class Look>
  void read(Address begin, Address end, bool watched, Skip&& skip, Look&& look) noexcept {
    static std::uint64_t states[512];
    Address run = 0;  // where the pages to be read together begin
    const auto end_run = [&](Address to) noexcept {
      if (run != 0) read_run(run, to, watched, look);
      run = 0;
    };
    for (Address at = align_up(begin, sizeof(Address)); at < end;) {
      const Address first = align_down(at, page_);
      const std::size_t pages = std::min((end - first + page_ - 1) / page_, std::size(states));
      const long got = raw_syscall(SYS_pread64, pagemap_, reinterpret_cast<long>(states),
                                   static_cast<long>(pages * sizeof states[0]),
                                   static_cast<long>(first / page_ * sizeof states[0]));
      const std::size_t known = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof states[0];
      for (std::size_t i = 0; i < pages; ++i) {
        // Unknown ones may be there.
        const std::uint64_t state = i < known ? states[i] : kSwapped;
        const bool is_there = (state & (kPresent | kSwapped)) != 0;
        const bool is_old = watched && (state & kProtected) != 0;
        if (!is_there || is_old || skip(at)) {
          end_run(at);
        } else if (run == 0) {
          run = at;
        }
        at = std::min(first + (i + 1) * page_, end);
      }
    }
    end_run(end);
  }

 private:
  static constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kProtected = std::uint64_t{1} << 57;

  static long open_watch() noexcept {
    constexpr long kUserModeOnly = 1;
    constexpr std::uint64_t kTakeOffAtWrite = std::uint64_t{1} << 15;
    const long file = raw_syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
    if (file < 0) return file;
    uffdio_api wish{};
    wish.api = UFFD_API;
    wish.features = kTakeOffAtWrite;
    if (raw_syscall(SYS_ioctl, file, UFFDIO_API, reinterpret_cast<long>(&wish)) == 0) return file;
    raw_syscall(SYS_close, file);
    return -1;
  }
  template <class Argument>
  bool control(unsigned long request, Argument* argument) noexcept {
    return raw_syscall(SYS_ioctl, watch_, static_cast<long>(request),
                       reinterpret_cast<long>(argument)) == 0;
  }

  // Protected before it is read: what is written in between is read once more.
  template <class Look>
  void read_run(Address begin, Address end, bool watched, Look& look) noexcept {
    static Address words[8192];
    if (watched) {
      uffdio_writeprotect pages{};
      const Address first = align_down(begin, page_);
      pages.range = {first, align_up(end, page_) - first};
      pages.mode = UFFDIO_WRITEPROTECT_MODE_WP;
      control(UFFDIO_WRITEPROTECT, &pages);
    }
    for (Address at = begin; at < end;) {
      const std::size_t bytes = copy(at, words, std::min(end - at, sizeof words));
      look(words, bytes / sizeof words[0]);
      // Where the system stops, a page cannot be read.
      at = bytes != 0 ? at + bytes : align_down(at, page_) + page_;
    }
  }
  static std::size_t copy(Address from, void* to, std::size_t bytes) noexcept {
    const iovec target{to, bytes};
    const iovec source{reinterpret_cast<void*>(from), bytes};
    const long got =
        raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_getpid), reinterpret_cast<long>(&target),
                    1, reinterpret_cast<long>(&source), 1, 0);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

  long pagemap_;
  long watch_;
  std::size_t page_;
};

}  // namespace allod
