#include "moments.hpp"

#include <algorithm>

#include "figures.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kMostMoments = 48;
constexpr std::uint64_t kFirstStrideMs = 2'000;
// Above this, moments are thinned out.
constexpr std::size_t kMostStacks = 400'000;

struct Moments {
  Moment* all[kMostMoments] = {};
  std::size_t count = 0;
  std::size_t stacks = 0;
  std::uint64_t stride_ms = kFirstStrideMs;
  std::uint64_t next_ms = 0;
};
constinit Moments moments;

void drop(std::size_t index) noexcept {
  moments.stacks -= moments.all[index]->stacks.size();
  moments.all[index]->~Moment();
  release(moments.all[index]);
  --moments.count;
  std::move(moments.all + index + 1, moments.all + moments.count + 1, moments.all + index);
}

// Drops every second one, except the first and the last.
void thin_out() noexcept {
  for (std::size_t i = moments.count - 2; i > 0 && i < moments.count; i = i >= 2 ? i - 2 : 0) {
    drop(i);
  }
  moments.stride_ms *= 2;
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
  if (!has_profile() || allod_profile_interval() == 0 || now_ms() < moments.next_ms) return;
  if (moments.count == kMostMoments || (moments.stacks > kMostStacks && moments.count > 4)) {
    thin_out();
  }
  void* const memory = allocate(sizeof(Moment));
  if (memory == nullptr) return;
  auto* const taken = new (memory) Moment{};
  if (!take_moment(*taken)) {
    taken->~Moment();
    release(taken);
    return;
  }
  moments.all[moments.count++] = taken;
  moments.stacks += taken->stacks.size();
  moments.next_ms = now_ms() + moments.stride_ms;
}

void forget_moments() noexcept {
  while (moments.count > 0) drop(moments.count - 1);
  moments = {};
}
void drop_moments() noexcept { moments = {}; }

std::size_t moment_count() noexcept { return moments.count; }
const Moment& moment(std::size_t index) noexcept { return *moments.all[index]; }

const Moment* moment_near(std::uint64_t at_ms) noexcept {
  const auto distance = [&](const Moment* it) {
    return it->at_ms > at_ms ? it->at_ms - at_ms : at_ms - it->at_ms;
  };
  const Moment* best = nullptr;
  for (std::size_t i = 0; i < moments.count; ++i) {
    if (best == nullptr || distance(moments.all[i]) < distance(best)) best = moments.all[i];
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
