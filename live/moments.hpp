// Heap profiles of several moments, to find stacks that grew between two of them, or always grow.
#pragma once

#include <cstdint>

#include "library.hpp"
#include "memory.hpp"

namespace allod::live {

struct StackSum {
  std::uint64_t id;
  std::uint64_t bytes;
  std::uint64_t blocks;
};

// Live bytes and blocks by stack, sorted by id.
struct Moment {
  std::uint64_t at_ms;  // wall clock
  Table<StackSum> stacks;
};

// Takes a moment from time to time while the profile is on. Called by the server's thread.
void take_moment_if_due() noexcept;
void forget_moments() noexcept;
// The same for a child of fork, in which their memory is gone.
void drop_moments() noexcept;
[[nodiscard]] std::size_t moment_count() noexcept;
[[nodiscard]] const Moment& moment(std::size_t index) noexcept;
// The moment nearest to a time; null if there is none.
[[nodiscard]] const Moment* moment_near(std::uint64_t at_ms) noexcept;
[[nodiscard]] const StackSum* find_stack(const Moment& moment, std::uint64_t id) noexcept;
// Takes the current profile. False if memory is exhausted.
[[nodiscard]] bool take_moment(Moment& moment) noexcept;

}  // namespace allod::live
