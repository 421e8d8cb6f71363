// Heap profiles of several moments: what grew between two of them, and what only ever grows.
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

// What was live at a moment, by stack, ordered by the stacks' ids.
struct Moment {
  std::uint64_t at_ms;  // of the wall clock
  Table<StackSum> stacks;
};

// A moment every now and then, as long as the profile is on; the server's thread calls it.
void take_moment_if_due() noexcept;
void forget_moments() noexcept;
// The same, without giving back their memory, which is gone.
void drop_moments() noexcept;
[[nodiscard]] std::size_t moment_count() noexcept;
[[nodiscard]] const Moment& moment(std::size_t index) noexcept;
// The one that is nearest to a time, or null when there is none.
[[nodiscard]] const Moment* moment_near(std::uint64_t at_ms) noexcept;
[[nodiscard]] const StackSum* find_stack(const Moment& moment, std::uint64_t id) noexcept;
// Everything that is live now. False when there was no memory.
[[nodiscard]] bool take_moment(Moment& moment) noexcept;

}  // namespace allod::live
