// A copy of the heap profile's stacks and sums.
#pragma once

#include <cstdint>

#include "library.hpp"
#include "memory.hpp"

namespace allod::live {

struct StackCopy {
  allod_profile_stack_t sums;  // `frames` points into the copy
  std::size_t first;           // of its frames
};

class Stacks {
 public:
  // False if memory is exhausted.
  [[nodiscard]] bool copy() noexcept;
  [[nodiscard]] const Table<StackCopy>& all() const noexcept { return all_; }
  [[nodiscard]] const StackCopy* find(std::uint64_t id) const noexcept;

 private:
  Table<StackCopy> all_;  // by id
  Table<std::uintptr_t> frames_;
};

}  // namespace allod::live
