// Records of who allocated and freed each block, and checks based on them. For the debug library,
// and the hardened one with measure "history".
#pragma once

#include "instance/process.hpp"
#include "unwind/backtrace.hpp"

namespace allod {

inline constexpr bool kMayKeepHistory = Policy::kTracked || Policy::kBlockStates;

// Records that `block` was allocated for `bytes`, with `room` bytes; 0: unknown. Thread-safe.
void track_allocation(void* block, std::size_t bytes, std::size_t room = 0) noexcept;

// The caller claims no size.
inline constexpr std::size_t kAnySize = ~std::size_t{0};

// Records a free. Returns false, after a report, if the block must not be freed. Thread-safe.
[[nodiscard]] bool track_release(void* address, std::size_t claimed_bytes) noexcept;

// Records that a block is freed, or ends with its heap. Ignores unknown blocks. Thread-safe.
void track_end(void* block) noexcept;

// Whether `address` is a block in use. Reports if it is not. Thread-safe.
[[nodiscard]] bool track_resize(void* address) noexcept;

// Whether the block is in use, as far as is known, and its requested size. Leaves `*bytes` alone if
// there is no record. Lock-free, async-signal-safe.
[[nodiscard]] bool track_bounds(const void* block, std::size_t* bytes) noexcept;

// Finds the latest record of a block and its requested size. False if there is none. Lock-free,
// async-signal-safe; a concurrent change may be seen in part.
[[nodiscard]] bool find_history(const void* block, History* history,
                                std::size_t* requested) noexcept;

// The memory of a block. find_extent() returns false if there is no record. Lock-free.
struct Extent {
  std::size_t requested;
  std::size_t room;
  bool is_live;
};
[[nodiscard]] bool find_extent(const void* block, Extent* extent) noexcept;

// Iterates over the blocks in use for which `wanted` is true; null at the end. Nothing can be freed
// while `wanted` runs. Thread-safe.
struct RecordCursor {
  std::size_t bucket = 0;
  const void* last = nullptr;  // in the bucket
};
using ChooseBlock = bool (*)(const void* block, const Extent& extent) noexcept;
[[nodiscard]] void* next_in_use(RecordCursor* cursor, ChooseBlock wanted) noexcept;

// Queues a freed block before it goes to the heap. False if it cannot. Thread-safe.
[[nodiscard]] bool put_waiting(void* block, std::size_t bytes) noexcept;
// Takes the oldest waiting block; with `overdue`, only if too many wait. Null if none. Thread-safe.
enum class Waiting : std::uint8_t { all, overdue };
[[nodiscard]] void* take_waiting(Waiting which) noexcept;

void lock_records() noexcept;
void unlock_records() noexcept;
void reset_records_lock_after_fork() noexcept;

}  // namespace allod
