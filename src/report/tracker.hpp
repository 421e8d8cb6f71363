// What happened to each block, and whether the next thing may happen to it. For the debug library,
// and for the hardened one where its measure "history" is on.
#pragma once

#include "instance/process.hpp"
#include "unwind/backtrace.hpp"

namespace allod {

inline constexpr bool kMayKeepHistory = Policy::kTracked || Policy::kBlockStates;

// Notes that `block` was handed out for `bytes`, and has room for so many; 0: not known.
// Thread-safe.
void track_allocation(void* block, std::size_t bytes, std::size_t room = 0) noexcept;

// What a caller of a free function claims about the size: nothing.
inline constexpr std::size_t kAnySize = ~std::size_t{0};

// Notes that `address` is being freed. False when it must not be: that has been
// reported. Thread-safe.
[[nodiscard]] bool track_release(void* address, std::size_t claimed_bytes) noexcept;

// Notes that `block` is being freed or goes with its heap, if it is known at all. Thread-safe.
void track_end(void* block) noexcept;

// Is `address` a block in use, that may be resized? False when it is not: that has been reported.
// Thread-safe.
[[nodiscard]] bool track_resize(void* address) noexcept;

// Is the block in use, as far as is known, and how many bytes were asked for? Nothing is written
// to `*bytes` where there is no record. Thread-safe, also in a signal handler: takes no lock.
[[nodiscard]] bool track_bounds(const void* block, std::size_t* bytes) noexcept;

// The last that is known of the block, and how many bytes were asked for. False when nothing is.
// Thread-safe, also in a signal handler: takes no lock, so what is just changing is told in part.
[[nodiscard]] bool find_history(const void* block, History* history,
                                std::size_t* requested) noexcept;

// What is known of a block's memory. False when nothing is. Thread-safe, and takes no lock.
struct Extent {
  std::size_t requested;
  std::size_t room;
  bool is_live;
};
[[nodiscard]] bool find_extent(const void* block, Extent* extent) noexcept;

// The blocks in use, one after the other; null: no more. `wanted` chooses among them while nothing
// can be freed. Thread-safe.
struct RecordCursor {
  std::size_t bucket = 0;
  const void* last = nullptr;  // in the bucket
};
using ChooseBlock = bool (*)(const void* block, const Extent& extent) noexcept;
[[nodiscard]] void* next_in_use(RecordCursor* cursor, ChooseBlock wanted) noexcept;

// A block that was freed waits before it goes to the heap. False when it cannot. Thread-safe.
[[nodiscard]] bool put_waiting(void* block, std::size_t bytes) noexcept;
// The one that waits longest, if there is any, or if there are too many; else null. Thread-safe.
enum class Waiting : std::uint8_t { all, overdue };
[[nodiscard]] void* take_waiting(Waiting which) noexcept;

void lock_records() noexcept;
void unlock_records() noexcept;
void reset_records_lock_after_fork() noexcept;

}  // namespace allod
