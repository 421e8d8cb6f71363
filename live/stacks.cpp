#include "stacks.hpp"

#include <algorithm>

namespace allod::live {

bool Stacks::copy() noexcept {
  all_.clear();
  frames_.clear();
  const auto visit = [](const allod_profile_stack_t* stack, void* context) -> int {
    auto& self = *static_cast<Stacks*>(context);
    const std::size_t first = self.frames_.size();
    for (std::size_t i = 0; i < stack->depth; ++i) {
      if (!self.frames_.push(stack->frames[i])) return 1;
    }
    return self.all_.push({*stack, first}) ? 0 : 1;
  };
  if (allod_profile_visit_stacks(visit, this) != 0) return false;
  std::sort(all_.begin(), all_.end(),
            [](const StackCopy& a, const StackCopy& b) { return a.sums.id < b.sums.id; });
  for (StackCopy& stack : all_) stack.sums.frames = frames_.begin() + stack.first;
  return true;
}

const StackCopy* Stacks::find(std::uint64_t id) const noexcept {
  const auto found =
      std::lower_bound(all_.begin(), all_.end(), id,
                       [](const StackCopy& row, std::uint64_t key) { return row.sums.id < key; });
  return found != all_.end() && found->sums.id == id ? found : nullptr;
}

}  // namespace allod::live
