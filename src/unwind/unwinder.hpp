// Captures call stacks by unwind tables, without allocation or locks, and caches the rules. For
// x86-64 with glibc 2.35 or later, which finds the tables without a lock.
#pragma once

#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::unwind {

struct Registers {
  Address rip = 0;
  Address rsp = 0;
  Address rbp = 0;
};

// The registers of the enclosing function.
[[gnu::always_inline]] inline Registers registers_here() noexcept {
  Registers here;
#ifdef ALLOD_HAS_UNWINDER
  asm volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
               : "=&r"(here.rip), "=&r"(here.rsp), "=r"(here.rbp));
#endif
  return here;
}

enum class Outcome : unsigned char {
  whole,       // up to the outermost frame, or to the limit
  unfinished,  // the tables need more than this unwinder supports
};

enum class From : unsigned char { here, interruption };

// Stores the addresses of up to `most` frames: that of `start`, then return addresses. From an
// interruption, it begins with the interrupted instruction, or stores nothing if there is none.
[[nodiscard]] Outcome walk(Registers start, From from, std::uintptr_t* frames, std::uint32_t most,
                           std::uint32_t* count) noexcept;

}  // namespace allod::unwind
