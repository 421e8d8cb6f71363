#include "moments.hpp"

#include <algorithm>

#include "figures.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kMostMoments = 48;
constexpr std::uint64_t kFirstStrideMs = 2'000;
// Past this, a moment takes the place of two.
constexpr std::size_t kMostStacks = 400'000;

struct Moments {
  Moment* all[kMostMoments] = {};
  std::size_t count = 0;
  std::size_t stacks = 0;
  std::uint64_t stride_ms = kFirstStrideMs;
  std::uint64_t next_ms = 0;
};
constinit Moments kept;

void drop(std::size_t index) noexcept {
  kept.stacks -= kept.all[index]->stacks.size();
  kept.all[index]->~Moment();
  release(kept.all[index]);
  --kept.count;
  std::move(kept.all + index + 1, kept.all + kept.count + 1, kept.all + index);
}

// Every second one goes, but neither the first nor the last.
void thin_out() noexcept {
  for (std::size_t i = kept.count - 2; i > 0 && i < kept.count; i = i >= 2 ? i - 2 : 0) drop(i);
  kept.stride_ms *= 2;
}

}  // namespace

bool take_moment(Moment& moment) noexcept {
  moment.at_ms = wall_clock_ms();
  moment.stacks.clear();
  const auto visit = [](const allod_profile_stack_t* stack, void* context) -> int {
    if (stack->live.bytes == 0) return 0;
    auto& to = *static_cast<Table<StackSum>*>(context);
    return to.push({stack->id, stack->live.bytes, stack->live.blocks}) ? 0 : 1;
  };
  if (allod_profile_visit_stacks(visit, &moment.stacks) != 0) return false;
  std::sort(moment.stacks.begin(), moment.stacks.end(),
            [](const StackSum& a, const StackSum& b) { return a.id < b.id; });
  return true;
}

void take_moment_if_due() noexcept {
  if (!has_profile() || allod_profile_interval() == 0 || now_ms() < kept.next_ms) return;
  if (kept.count == kMostMoments || (kept.stacks > kMostStacks && kept.count > 4)) thin_out();
  void* const memory = allocate(sizeof(Moment));
  if (memory == nullptr) return;
  auto* const taken = new (memory) Moment{};
  if (!take_moment(*taken)) {
    taken->~Moment();
    release(taken);
    return;
  }
  kept.all[kept.count++] = taken;
  kept.stacks += taken->stacks.size();
  kept.next_ms = now_ms() + kept.stride_ms;
}

void forget_moments() noexcept {
  while (kept.count > 0) drop(kept.count - 1);
  kept = {};
}
void drop_moments() noexcept { kept = {}; }

std::size_t moment_count() noexcept { return kept.count; }
const Moment& moment(std::size_t index) noexcept { return *kept.all[index]; }

const Moment* moment_near(std::uint64_t at_ms) noexcept {
  const auto distance = [&](const Moment* it) {
    return it->at_ms > at_ms ? it->at_ms - at_ms : at_ms - it->at_ms;
  };
  const Moment* best = nullptr;
  for (std::size_t i = 0; i < kept.count; ++i) {
    if (best == nullptr || distance(kept.all[i]) < distance(best)) best = kept.all[i];
  }
  return best;
}

const StackSum* find_stack(const Moment& moment, std::uint64_t id) noexcept {
  const auto found =
      std::lower_bound(moment.stacks.begin(), moment.stacks.end(), id,
                       [](const StackSum& row, std::uint64_t key) { return row.id < key; });
  return found != moment.stacks.end() && found->id == id ? found : nullptr;
}

}  // namespace allod::live
