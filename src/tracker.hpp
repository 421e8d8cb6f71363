// What happened to each block, and whether the next thing may happen to it. For the debug library,
// and for the hardened one where its measure "history" is on.
#pragma once

#include "backtrace.hpp"
#include "process.hpp"

namespace allod {

inline constexpr bool kMayKeepHistory = Policy::kTracked || Policy::kBlockStates;

// Notes that `block` was handed out for `bytes`. Thread-safe.
void track_allocation(void* block, std::size_t bytes) noexcept;

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

void lock_records() noexcept;
void unlock_records() noexcept;
void reset_records_lock_after_fork() noexcept;

}  // namespace allod
