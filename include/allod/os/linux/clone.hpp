// The C library's clone, for threads of our own on processors where we do not make the system call
// ourselves.
#pragma once

#include "allod/base/base.hpp"

#if !defined(__x86_64__) && !defined(__aarch64__)

#if defined(__i386__)
#include <asm/ldt.h>
#endif

extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
// By the name that glibc has for its own use: programs, and Allod, stand in front of `clone`.
int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept;
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

namespace allod::os {

// What CLONE_SETTLS takes for a thread pointer.
class ThreadPointerArgument {
 public:
#if defined(__i386__)
  // There the ABI reads the thread pointer through itself, and a segment begins at it: the one that
  // the calling thread has, by its number.
  explicit ThreadPointerArgument(void* pointer) noexcept {
    *static_cast<void**>(pointer) = pointer;
    unsigned selector;
    __asm__("movl %%gs, %0" : "=r"(selector));
    segment_.entry_number = selector >> 3;
    segment_.base_addr = static_cast<unsigned>(address_of(pointer));
    segment_.limit = 0xfffff;
    segment_.seg_32bit = 1;
    segment_.limit_in_pages = 1;
    segment_.useable = 1;
  }
  [[nodiscard]] void* value() noexcept { return &segment_; }

 private:
  user_desc segment_ = {};
#else
  explicit ThreadPointerArgument(void* pointer) noexcept : pointer_{pointer} {}
  [[nodiscard]] void* value() const noexcept { return pointer_; }

 private:
  void* pointer_;
#endif
};

}  // namespace allod::os

#endif
