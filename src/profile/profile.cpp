#include "profile/profile.hpp"

#include <errno.h>

#include <algorithm>

#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "profile/book.hpp"
#include "unwind/backtrace.hpp"

namespace allod::profile {

namespace {

// Readable bytes of a block, before any guard; 0 if it was freed and waits.
std::size_t readable_bytes(const Sample& sample) noexcept {
  const auto* const block = reinterpret_cast<const void*>(sample.at());
  if constexpr (Policy::kBlockStates) return hardened::readable_bytes(block);
  return Guards::holds(block) ? sample.asked() : sample.bytes();
}

}  // namespace

void reset() noexcept {
  const std::uint64_t now = now_ms();
  LockGuard lock{book.lock};
  ++book.peaks;
  book.peak = book.live;
  book.total = {};
  book.peak_ms = book.since_ms = now;
  book.total_samples = book.lost_samples = 0;
  timeline.clear();
  for (Sum& lifetime : book.lifetimes) lifetime = {};
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    stack->total = {};
    stack->total_samples = stack->freed_samples = stack->lives_ms = 0;
  }
}

void summarise(allod_profile_summary_t& summary) noexcept {
  summary = {};
  summary.interval = Profile::interval();
  const std::uint64_t now = now_ms();
  LockGuard lock{book.lock};
  summary.live = told(book.live);
  summary.peak = told(book.peak);
  summary.total = told(book.total);
  summary.stacks = book.stack_count;
  summary.live_samples = book.live_samples;
  summary.total_samples = book.total_samples;
  summary.lost_samples = book.lost_samples;
  summary.since_ms = book.since_ms == 0 ? 0 : now - book.since_ms;
  summary.peak_age_ms = now - book.peak_ms;
  for (int i = 0; i < ALLOD_PROFILE_LIFETIMES; ++i) {
    summary.lifetimes[i] = told(book.lifetimes[i]);
  }
}

namespace {

// Requires the lock.
allod_profile_stack_t describe(const KnownStack& stack, std::uint64_t now) noexcept {
  const std::uint64_t live = stack.live_samples;
  return {.id = stack.id,
          .frames = stack.frames,
          .depth = stack.depth,
          .live = told(stack.live),
          .peak = told(peak_of(stack)),
          .total = told(stack.total),
          .live_samples = live,
          .total_samples = stack.total_samples,
          .freed_samples = stack.freed_samples,
          .mean_age_ms = live == 0 ? 0 : now - stack.births_ms / live,
          .mean_lifetime_ms = stack.freed_samples == 0 ? 0 : stack.lives_ms / stack.freed_samples};
}

// Requires the lock.
allod_profile_block_t describe(const Sample& sample, std::uint64_t now) noexcept {
  return {.address = reinterpret_cast<const void*>(sample.at()),
          .bytes = sample.bytes(),
          .requested = sample.asked(),
          .stack = sample.stack()->id,
          .count_x256 = count_x256(sample),
          .age_ms = now > sample.birth_ms ? now - sample.birth_ms : 0,
          .thread = static_cast<std::uint32_t>(sample.thread),
          .neighbour = reinterpret_cast<const void*>(sample.neighbour())};
}

// Calls visit(number, sample) for each. Requires the lock.
template <class Visit>
void for_each_sample(Visit&& visit) noexcept {
  for (std::uint32_t number = 1; number <= book.samples.last(); ++number) {
    Sample& sample = book.samples[number];
    if (sample.block != 0) visit(number, sample);
  }
}

}  // namespace

int visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept {
  constexpr std::size_t kMost = 64;
  // Stacks and frames are never freed.
  for (KnownStack* stack = book.first.load(std::memory_order_acquire); stack != nullptr;) {
    allod_profile_stack_t seen[kMost];
    std::size_t count = 0;
    const std::uint64_t now = now_ms();
    {
      LockGuard lock{book.lock};
      for (; stack != nullptr && count < kMost; stack = stack->next.load()) {
        seen[count++] = describe(*stack, now);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (const int result = visit(&seen[i], context)) return result;
    }
  }
  return 0;
}

int visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept {
  // Copies in portions. A sample keeps its number between two of them.
  constexpr std::uint32_t kMostRead = 4096;
  constexpr std::size_t kMost = 64;
  const std::uint64_t now = now_ms();
  bool is_more = true;
  for (std::uint32_t number = 1; is_more;) {
    allod_profile_block_t seen[kMost];
    std::size_t count = 0;
    {
      LockGuard lock{book.lock};
      const std::uint32_t last = book.samples.last();
      for (std::uint32_t i = 0; i < kMostRead && count < kMost && number <= last; ++i, ++number) {
        const Sample& sample = book.samples[number];
        if (sample.block != 0) seen[count++] = describe(sample, now);
      }
      is_more = number <= last;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (const int result = visit(&seen[i], context)) return result;
    }
  }
  return 0;
}

std::uint64_t end_stacks_in(Address begin, Address end, bool is_known) noexcept {
  Busy guard;
  LockGuard lock{book.lock};
  if (is_known) return book.stack_count;
  bool is_any = false;
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    const bool is_there = std::any_of(stack->frames, stack->frames + stack->depth,
                                      [&](Address at) { return at >= begin && at < end; });
    stack->is_complete = stack->is_complete || is_there;
    is_any = is_any || is_there;
  }
  return is_any ? book.stack_count : 0;
}

void forgive() noexcept {
  LockGuard lock{book.lock};
  for_each_sample([](std::uint32_t, Sample& sample) noexcept { sample.is_forgiven = 1; });
}

AtRest::AtRest() noexcept {
  busy = true;
  book.lock.lock();
}
AtRest::~AtRest() {
  book.lock.unlock();
  busy = false;
}
std::size_t AtRest::count() const noexcept { return book.samples.entries(); }
void AtRest::list(Suspect* suspects) const noexcept {
  for_each_sample([&](std::uint32_t number, Sample& sample) noexcept {
    const std::size_t bytes = readable_bytes(sample);
    const bool is_small = bytes % Suspect::kUnit == 0 && bytes < Suspect::kLarge * Suspect::kUnit;
    Suspect& suspect = *suspects++;
    suspect = {};
    suspect.begin = sample.block;
    suspect.leak = bytes != 0 ? Suspect::kDirect : Suspect::kNone;
    suspect.is_new = sample.is_forgiven == 0;
    suspect.units = (is_small ? bytes / Suspect::kUnit : Suspect::kLarge) & Suspect::kLarge;
    suspect.sample = number;
  });
}
Address AtRest::end_of_large(const Suspect& suspect) noexcept {
  return suspect.start() + readable_bytes(book.samples[suspect.sample]);
}
void AtRest::note(const Suspect* suspects, std::size_t count) noexcept {
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    stack->leaked_directly = stack->leaked = {};
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (suspects[i].leak == Suspect::kNone) continue;
    const Sample& sample = book.samples[suspects[i].sample];
    add(sample.stack()->leaked, weight_of(sample));
    if (suspects[i].leak == Suspect::kDirect) {
      add(sample.stack()->leaked_directly, weight_of(sample));
    }
  }
}

int visit_leaks(allod_profile_stack_visit_t visit, void* context) noexcept {
  for (KnownStack* stack = book.first.load(std::memory_order_acquire); stack != nullptr;
       stack = stack->next.load(std::memory_order_acquire)) {
    if (stack->leaked.blocks == 0) continue;
    const allod_profile_stack_t leak{.id = stack->id,
                                     .frames = stack->frames,
                                     .depth = stack->depth,
                                     .live = told(stack->leaked_directly),
                                     .peak = {},
                                     .total = told(stack->leaked),
                                     .live_samples = 0,
                                     .total_samples = 0,
                                     .freed_samples = 0,
                                     .mean_age_ms = 0,
                                     .mean_lifetime_ms = 0};
    if (const int result = visit(&leak, context)) return result;
  }
  return 0;
}

void lock() noexcept { book.lock.lock_for_fork(); }
void unlock() noexcept { book.lock.unlock_in_parent(); }
void reset_lock_after_fork() noexcept {
  book.lock.reset_in_child();
  forget_thread_after_fork();
}

}  // namespace allod::profile

extern "C" {

int allod_profile_start(size_t interval) noexcept {
  return allod::Profile::start(interval) ? 0 : ENOMEM;
}
void allod_profile_stop() noexcept { allod::Profile::stop(); }
size_t allod_profile_interval() noexcept { return allod::Profile::interval(); }
void allod_profile_reset() noexcept { allod::profile::reset(); }
int allod_profile_visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept {
  return allod::profile::visit_stacks(visit, context);
}
int allod_profile_visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept {
  return allod::profile::visit_blocks(visit, context);
}
int allod_profile_visit_classes(allod_profile_class_visit_t visit, void* context) noexcept {
  return allod::profile::visit_classes(visit, context);
}
int allod_profile_summary_get(allod_profile_summary_t* summary, size_t size) noexcept {
  if (summary == nullptr || size != sizeof *summary) return EINVAL;
  allod::profile::summarise(*summary);
  return 0;
}
void allod_profile_write(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::profile::write(out);
}

}  // extern "C"
