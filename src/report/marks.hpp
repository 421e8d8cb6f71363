// Fill patterns of the debug library, behind blocks and in freed ones. A changed pattern reveals a
// write past the end or after free.
#pragma once

#include "instance/process.hpp"

namespace allod::marks {

// Bytes added behind each block. None while sampling is on, since the profile shows sizes and some
// samples have guards; none in first-class heaps, which have limits.
inline constexpr std::size_t kZoneBytes = 64;
[[nodiscard]] std::size_t room_for(std::size_t size) noexcept;

// In scope while a thread is in a call of the heap. A signal handler must then free its blocks at
// once and in reverse order, since the heap may be about to hand out the same ones. So these do not
// wait.
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

// Marks the end of a block that the program requested with `bytes`. Ignores null.
void hand_out(void* block, std::size_t bytes) noexcept;

// Reports a write past the end of a block in use, once for each write. Ignores other addresses.
// Thread-safe, like the functions below.
void check_end(void* block) noexcept;

// Frees a block that track_release() has accepted: it waits, or goes to the heap.
void release(void* block) noexcept;

// Frees all waiting blocks when memory is exhausted. False if there were none.
[[nodiscard]] bool make_room() noexcept;

// Checks all waiting blocks, and the ends of all blocks in use. Skips first-class heaps, whose
// buffers may be gone.
void check_all() noexcept;

}  // namespace allod::marks
