// Call stacks by the unwind tables, without allocation and without a lock, with a memory of what
// the tables say. On x86-64 with glibc 2.35 or later, which tells where tables are without a lock.
#pragma once

#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::unwind {

struct Registers {
  Address rip = 0;
  Address rsp = 0;
  Address rbp = 0;
};

// Those of the function that this is written in.
[[gnu::always_inline]] inline Registers registers_here() noexcept {
  Registers here;
#if defined(__x86_64__)
  asm volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
               : "=&r"(here.rip), "=&r"(here.rsp), "=r"(here.rbp));
#endif
  return here;
}

enum class Outcome : unsigned char {
  whole,       // to the outermost frame, or to as many as were wanted
  unfinished,  // what the tables say is beyond what is followed here
};

enum class From : unsigned char { here, interruption };

// Notes the addresses of the frames from `start` on: the first is that of `start`, all others are
// where calls return to. From an interruption: from the instruction on that a signal has
// interrupted; nothing if there is none. `*count` is how many, `most` at most.
[[nodiscard]] Outcome walk(Registers start, From from, std::uintptr_t* frames, std::uint32_t most,
                           std::uint32_t* count) noexcept;

}  // namespace allod::unwind
