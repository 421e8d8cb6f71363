// Reads memory while the program writes it, and rereads the pages written since.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <iterator>

#include "allod/base/base.hpp"
#include "allod/os/linux/calls.hpp"

namespace allod {

// Reads only pages that exist by /proc/thread-self/pagemap; others are empty or guards. The kernel
// copies the pages, so they may disappear at any time. Pages that were read are write-protected by
// a userfaultfd, and the kernel removes the protection at the first write (Linux 6.7).
class PageReader {
  static constexpr std::size_t kTogether = 512;

 public:
  // Working memory. Searches must skip it, since it holds copies.
  struct Memory {
    iovec pieces[kTogether];
    std::uint64_t states[kTogether];
    Address words[32 * 1024];
  };

  // Whether the kernel allows this process to copy its memory so.
  [[nodiscard]] static bool works() noexcept {
    Address word = 1;
    Address copied = 0;
    const iovec piece{&word, sizeof word};
    return copy(&piece, 1, &copied, sizeof copied) == sizeof copied && copied == word;
  }

  // `watches`: track later writes. This must run in a thread whose descriptors no child inherits,
  // or memory would stay protected after this object is gone.
  PageReader(Memory& memory, std::size_t page_bytes, bool watches) noexcept
      : memory_{memory},
        pagemap_{raw_syscall(SYS_openat, AT_FDCWD,
                             reinterpret_cast<long>("/proc/thread-self/pagemap"),
                             O_RDONLY | O_CLOEXEC)},
        watch_{watches ? open_watch() : -1},
        page_{page_bytes} {}
  ~PageReader() {
    if (pagemap_ >= 0) raw_syscall(SYS_close, pagemap_);
    if (watch_ >= 0) raw_syscall(SYS_close, watch_);
  }
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  // Whether the kernel can track writes.
  [[nodiscard]] bool can_watch() const noexcept { return watch_ >= 0; }
  // Stops protecting pages: later writes do not matter.
  void begin_last() noexcept { is_last_ = true; }
  // Tracks writes to a mapping. False if the program itself tracks it by userfaultfd.
  [[nodiscard]] bool watch(Address begin, Address end) noexcept {
    if (!can_watch()) return false;
    uffdio_register mapping{};
    mapping.range = {begin, end - begin};
    mapping.mode = UFFDIO_REGISTER_MODE_WP;
    return control(UFFDIO_REGISTER, &mapping);
  }

  // Passes the words in existing pages of [begin, end) to `look(words, count)`, except where
  // `skip(from, to, elsewhere)` is true. If `watched`, only pages written since they were last
  // read.
  template <class Skip, class Look>
  void read(Address begin, Address end, bool watched, Skip&& skip, Look&& look) noexcept {
    auto& states = memory_.states;
    for (Address at = align_up(begin, sizeof(Address)); at < end;) {
      const Address first = align_down(at, page_);
      const std::size_t pages = std::min((end - first + page_ - 1) / page_, std::size(states));
      const long got = os::calls::read_at(pagemap_, states, pages * sizeof states[0],
                                          first / page_ * sizeof states[0]);
      const std::size_t known = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof states[0];
      for (std::size_t i = 0; i < pages; ++i) {
        // A page of unknown state may exist.
        const std::uint64_t state = i < known ? states[i] : kSwapped;
        const bool is_there = (state & (kPresent | kSwapped)) != 0 && (state & kGuard) == 0;
        const bool is_old = watched && (state & kProtected) != 0;
        const Address next = std::min(first + (i + 1) * page_, end);
        if (is_there && !is_old && !skip(at, next, (state & kPresent) == 0)) add(at, next);
        at = next;
      }
      read_added(watched, look);
    }
  }

 private:
  static constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
  // Linux 6.15 and later. Before, a guard looks like a swapped page, and cannot be read.
  static constexpr std::uint64_t kGuard = std::uint64_t{1} << 58;
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

  // Adds a range, merged with its neighbour.
  void add(Address begin, Address end) noexcept {
    iovec* const pieces = memory_.pieces;
    if (count_ != 0 &&
        address_of(pieces[count_ - 1].iov_base) + pieces[count_ - 1].iov_len == begin) {
      pieces[count_ - 1].iov_len += end - begin;
    } else {
      pieces[count_++] = {reinterpret_cast<void*>(begin), end - begin};
    }
  }
  // Protects exactly these pages before it reads them, so a write in between makes the page be read
  // again.
  template <class Look>
  void read_added(bool watched, Look& look) noexcept {
    const iovec* const pieces = memory_.pieces;
    auto& words = memory_.words;
    for (std::size_t i = 0; watched && !is_last_ && i < count_; ++i) {
      const Address begin = address_of(pieces[i].iov_base);
      uffdio_writeprotect pages{};
      pages.range.start = align_down(begin, page_);
      pages.range.len = align_up(begin + pieces[i].iov_len, page_) - pages.range.start;
      pages.mode = UFFDIO_WRITEPROTECT_MODE_WP;
      control(UFFDIO_WRITEPROTECT, &pages);
    }
    for (std::size_t from = 0; from < count_;) {
      const std::size_t bytes = copy(&pieces[from], count_ - from, words, sizeof words);
      look(words, bytes / sizeof words[0]);
      from = pass(from, bytes, bytes == sizeof words);
    }
    count_ = 0;
  }
  // Advances by the bytes that were copied. Skips a page at which the kernel stopped: it cannot be
  // read.
  std::size_t pass(std::size_t from, std::size_t bytes, bool is_full) noexcept {
    iovec* const pieces = memory_.pieces;
    while (from < count_ && bytes >= pieces[from].iov_len) bytes -= pieces[from++].iov_len;
    if (from == count_) return from;
    iovec& piece = pieces[from];
    const Address begin = address_of(piece.iov_base) + bytes;
    const Address end = address_of(piece.iov_base) + piece.iov_len;
    const Address next = is_full ? begin : std::min(align_down(begin, page_) + page_, end);
    piece = {reinterpret_cast<void*>(next), end - next};
    return next < end ? from : from + 1;
  }
  static std::size_t copy(const iovec* pieces, std::size_t count, void* to,
                          std::size_t bytes) noexcept {
    const iovec target{to, bytes};
    const long got =
        raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_gettid), reinterpret_cast<long>(&target),
                    1, reinterpret_cast<long>(pieces), static_cast<long>(count), 0);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

  Memory& memory_;
  long pagemap_;
  long watch_;
  std::size_t page_;
  bool is_last_ = false;
  std::size_t count_ = 0;
};

}  // namespace allod
