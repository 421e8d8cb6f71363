// Reads memory of the program that may not be there.
#pragma once

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <iterator>

#include "allod/base/base.hpp"
#include "allod/base/cpu.hpp"

namespace allod::unwind {

inline constexpr Address kProbedBytes = 4096;

// Whether the page at this address can be read: by rt_sigprocmask with an invalid `how`. The kernel
// reads the set first, and changes nothing. It takes address 0 for no set.
[[nodiscard]] inline bool is_readable(Address page) noexcept {
  constexpr long kNothing = -1;
  return page != 0 &&
         raw_syscall(SYS_rt_sigprocmask, kNothing, static_cast<long>(page), 0, 8) != -EFAULT;
}

// Reads saved registers where tables say. Tables may be wrong, so each page is probed before it is
// touched. The page of `present` needs no probe.
class Memory {
 public:
  explicit Memory(Address present) noexcept : page_(page_of(present)) {}

  [[nodiscard]] bool read(Address from, Address* word) noexcept {
    if (from % sizeof(Address) != 0) return false;
    if (page_of(from) != page_ && !enter(from)) return false;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the kernel was asked for that page.
    *word = *reinterpret_cast<const Address*>(from);
    return true;
  }

 private:
  static Address page_of(Address address) noexcept { return align_down(address, kProbedBytes); }

  [[gnu::noinline]] bool enter(Address address) noexcept {
    const Address page = page_of(address);
    if (!is_readable(page)) return false;
    page_ = page;
    return true;
  }

  Address page_;
};

// Reads objects of a program that lie apart. Remembers the pages that it has found, so that the
// program must not unmap them during its lifetime.
class ScatteredMemory {
 public:
  // Whether a page is known to be readable, without asking the kernel. May be null.
  using IsPresent = bool (*)(Address page) noexcept;

  explicit ScatteredMemory(IsPresent is_present = nullptr) noexcept : is_present_{is_present} {}

  // Pages that need no probe, besides.
  void trust(Address begin, Address end) noexcept {
    begin_ = begin;
    size_ = end - begin;
  }

  [[nodiscard]] bool is_there(Address from, std::size_t bytes) noexcept {
    const Address end = from + bytes;
    if (end < from) return false;
    for (Address page = align_down(from, kProbedBytes); page < end; page += kProbedBytes) {
      if (known_of(page) != page && !is_trusted(page) && !probe(page)) return false;
    }
    return true;
  }
  // False, with nothing copied, if not all is there.
  [[nodiscard]] bool copy(Address from, void* to, std::size_t bytes) noexcept {
    if (!is_there(from, bytes)) return false;
    memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return true;
  }
  template <class T>
  [[nodiscard]] bool read(Address from, T* to) noexcept {
    return copy(from, to, sizeof *to);
  }
  // Reads words that other threads may free meanwhile, with their memory. The kernel copies them,
  // unless it is forbidden to.
  template <std::size_t kCount>
  [[nodiscard]] bool read_words(const Address (&from)[kCount], Address (&to)[kCount]) noexcept {
    iovec theirs[kCount];
    bool is_ours = true;
    for (std::size_t i = 0; i < kCount; ++i) {
      theirs[i] = {reinterpret_cast<void*>(from[i]), sizeof(Address)};
      is_ours = is_ours && is_trusted(from[i]);
    }
    if (is_ours) return read_each(from, to);
    const iovec ours{to, sizeof to};
    const long got =
        raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_gettid), reinterpret_cast<long>(&ours), 1,
                    reinterpret_cast<long>(theirs), static_cast<long>(kCount), 0);
    if (got == -ENOSYS || got == -EPERM) return read_each(from, to);
    return got == static_cast<long>(sizeof to);
  }

 private:
  [[nodiscard]] Address& known_of(Address page) noexcept {
    return known_[page / kProbedBytes % std::size(known_)];
  }
  [[nodiscard]] bool is_trusted(Address at) const noexcept { return at - begin_ < size_; }
  [[gnu::noinline]] bool probe(Address page) noexcept {
    if ((is_present_ == nullptr || !is_present_(page)) && !is_readable(page)) return false;
    known_of(page) = page;
    return true;
  }
  template <std::size_t kCount>
  [[nodiscard]] bool read_each(const Address (&from)[kCount], Address (&to)[kCount]) noexcept {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (!read(from[i], &to[i])) return false;
    }
    return true;
  }

  IsPresent is_present_;
  Address begin_ = 0;
  Address size_ = 0;
  Address known_[64] = {};
};

}  // namespace allod::unwind
