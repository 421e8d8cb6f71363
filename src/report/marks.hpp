// What the debug library writes behind the blocks of the program and into those that are freed, and
// finds changed there: writes past the end, and writes after free.
#pragma once

#include "instance/process.hpp"

namespace allod::marks {

// Behind each block, besides what rounding leaves. None while there are samples, whose sizes the
// profile tells, and of which some have guards; and none in first-class heaps, which have limits.
inline constexpr std::size_t kZoneBytes = 64;
[[nodiscard]] std::size_t room_for(std::size_t size) noexcept;

// While a thread is within a call of the heap. A signal handler that interrupts it there has to
// give back what it takes in reverse order and at once, as the heap may be about to hand out the
// same: what is freed meanwhile does not wait.
class InHeap {
 public:
  InHeap() noexcept { depth_ = depth_ + 1; }
  ~InHeap() { depth_ = depth_ - 1; }
  InHeap(const InHeap&) = delete;
  InHeap& operator=(const InHeap&) = delete;
  [[nodiscard]] static bool is_here() noexcept { return depth_ != 0; }

 private:
  static inline constinit thread_local volatile unsigned depth_ = 0;
};

// A block of the heap goes to the program, which has asked for so many bytes; null is passed over.
void hand_out(void* block, std::size_t bytes) noexcept;

// Tells of a block in use that was written to past its end; once for each write. Of what is no
// block it says nothing. Thread-safe, like all of these.
void check_end(void* block) noexcept;

// What take_back() of the records has let pass: the block waits, or goes to the heap.
void release(void* block) noexcept;

// When the system refuses memory: all that waits goes to the heap. False when nothing did.
[[nodiscard]] bool make_room() noexcept;

// All that waits, and the end of all blocks in use but those of first-class heaps, of which the
// memory may be gone with its owner.
void check_all() noexcept;

}  // namespace allod::marks
