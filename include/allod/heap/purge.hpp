// Maintenance in slow paths, and purges of free memory.
#pragma once

#include <utility>

#include "allod/heap/engine.hpp"

namespace allod::heap {

// The most that a purge gives back while a caller waits.
inline constexpr std::size_t kPurgeStep = std::size_t{1} << 20;
// The same in a step of the helper.
inline constexpr std::size_t kHelperStep = std::size_t{4} << 20;
// Less than this does not start the helper.
inline constexpr std::size_t kWorthAThread = std::size_t{1} << 20;
// The helper's longest sleep when only heaps have delays.
inline constexpr std::uint32_t kLongestNapMs = 60'000;
// Slow operations of a domain between two looks at its magazines.
inline constexpr std::uint32_t kLookInterval = 256;

template <class Policy, class Above>
void Engine<Policy, Above>::look_around(Domain& domain) noexcept {
  if (!domain.inbox.empty()) collect_inbox(domain);
  note_stock(domain);
  if (++domain.slow_operations % kLookInterval != 0) return;
  send_all(domain);
  shrink_magazines(domain, Shrink::spare);
  reap_orphans(kOrphanLooks);
  maybe_purge();
  if (domain.state.load(std::memory_order_relaxed) == DomainState::active) empty_resting_if_due();
  ask_for_look(domain);
}

// Asks for a look by the helper once much memory within slabs has become free.
template <class Policy, class Above>
void Engine<Policy, Above>::ask_for_look(Domain& domain) noexcept {
  if (domain.loosened < kWorthAThread) return;
  loosened_.fetch_add(std::exchange(domain.loosened, 0), std::memory_order_relaxed);
  fresh_before_.store(space_.fresh_bytes(), std::memory_order_relaxed);
  look_is_wanted_.store(true, std::memory_order_relaxed);
  start_helper();
}

// A magazine unchanged since the last look is idle, and gives up all blocks. Any other one that has
// not run dry since has blocks to spare, and gives up half.
template <class Policy, class Above>
void Engine<Policy, Above>::shrink_magazines(Domain& domain, Shrink which) noexcept {
  for (ClassIndex c = 0; c < kClasses; ++c) {
    Bin& bin = domain.bins()[c];
    const std::uint16_t now = domain.digest(c);
    const bool was_left = std::exchange(bin.seen, now) == now;
    if (std::exchange(bin.ran_dry, false)) continue;
    const std::uint32_t held = domain.cached(c);
    if (held == 0) retire_last(domain, bin);
    if (which == Shrink::idle && !was_left) continue;
    if (held != 0) domain.counters.magazine_shrinks.add(1);
    const std::uint32_t parts = was_left ? 1 : 2;
    for (Magazine* const magazine : {&domain.magazines[c], &domain.freed[c]}) {
      flush(domain, *magazine, c, (magazine->count() + parts - 1) / parts);
      const std::uint32_t capacity = magazine->capacity();
      if (capacity > usual_capacity(c)) resize_magazine(domain, *magazine, c, capacity / 2);
    }
    bin.seen = domain.digest(c);
  }
}

// Frees the last slab of a class that has not been used since the last look. A slab that was hardly
// used stays: a new one would have pages that are not present.
template <class Policy, class Above>
void Engine<Policy, Above>::retire_last(Domain& domain, Bin& bin) noexcept {
  if (bin.partial.empty() || bin.partial.first() != bin.partial.last()) return;
  Slab& slab = *slab::as_slab(bin.partial.first());
  if (slab.is_empty() && !slab.is_announced() && slab.was_mostly_used()) retire(domain, bin, slab);
}

// Blocks that wait elsewhere come in bursts and rarely from slabs, so a magazine that has not run
// dry proves nothing: only idle ones shrink.
template <class Policy, class Above>
void Engine<Policy, Above>::note_burst(Domain& domain) noexcept {
  if (++domain.bursts % kLookInterval != 0) return;
  SlowPath slow{domain, gate_};
  shrink_magazines(domain, Shrink::idle);
  maybe_purge();
}

// The helper purges this much below a passed budget, and callers tolerate as much above it.
[[nodiscard]] constexpr std::size_t headroom(std::size_t budget) noexcept { return budget / 8; }

template <class Policy, class Above>
inline std::size_t Engine<Policy, Above>::dirty_bytes() const noexcept {
  return space_.dirty_bytes() + kept_bytes_.load(std::memory_order_relaxed);
}

// The budget without the bytes that domains keep, but at least a quarter of it: without any, each
// slab that becomes empty would be purged. Or, if more, the difference to the recent peak of use. A
// program that soon allocates as much again finds the memory, and never has more than at its peak.
// The delay purges it later.
template <class Policy, class Above>
inline std::size_t Engine<Policy, Above>::purge_budget() const noexcept {
  const std::size_t least = options_.purge_budget / 4;
  const std::size_t kept = kept_bytes_.load(std::memory_order_relaxed);
  const std::size_t budget =
      kept < options_.purge_budget - least ? options_.purge_budget - kept : least;
  if (!helper_.is_running()) return budget;
  const std::size_t below = space_.below_peak();
  const std::size_t lately = below < options_.most_below_peak ? below : options_.most_below_peak;
  return lately > budget ? lately : budget;
}

template <class Policy, class Above>
void Engine<Policy, Above>::maybe_purge() noexcept {
  if (__builtin_expect(grows_beside_holes(), 0) && !holes_are_wanted_.exchange(true)) {
    helper_.template wake<Platform>();
  }
  if (__builtin_expect(space_.delayed_bytes() != 0, 0)) purge_delayed();
  if (options_.purge_delay_ms < 0) return;
  if (dirty_bytes() == 0 && !look_is_wanted_.load(std::memory_order_relaxed)) return;
  const auto delay = static_cast<std::uint32_t>(options_.purge_delay_ms);
  if (delay == 0) {
    space_.purge(0, 0, space_.dirty_bytes());
    return;
  }
  const std::size_t budget = purge_budget();
  if (!helper_.is_running()) {
    space_.purge(delay, budget, kPurgeStep);
    if (has_work_for_helper()) start_helper();
    return;
  }
  // No caller waits for the system as long as the helper keeps up. It may get no processor, or
  // belong to a parent from which a bare system call cloned this process.
  if (space_.dirty_bytes_above(budget) != 0) helper_.template wake<Platform>();
  space_.purge(2 * delay, budget + headroom(budget), kPurgeStep);
}

// Purges heaps with delays of their own, which hold whatever the options of the process say.
template <class Policy, class Above>
ALLOD_NOINLINE void Engine<Policy, Above>::purge_delayed() noexcept {
  space_.purge_delayed(kPurgeStep, false);
  if (space_.delayed_bytes() >= kWorthAThread) start_helper();
}

template <class Policy, class Above>
void Engine<Policy, Above>::start_helper() noexcept {
  if (!options_.purge_thread || space_.refuses_purge()) return;
  if (options_.purge_delay_ms <= 0 && space_.delayed_bytes() == 0) return;
  if (!helper_.is_none() || helper_.is_kept_away()) return;
  // In the child of a fork, other handlers may free memory before after_fork_in_child() has reset
  // the helper. It must not start twice on one stack.
  if (gate_.is_closed()) return;
  if (!fork_pause_.is_over()) {
    if (fork_pause_.holds_back(space_.platform().now_ms(), dirty_bytes())) return;
  }
  const std::uint32_t start = helper_.begin();
  if (start == 0) return;
  holes_are_wanted_.store(false);
  if (!space_.platform().start_helper(&purge_on_helper, this)) return helper_.end();
  helper_.began(start);
}

template <class Policy, class Above>
bool Engine<Policy, Above>::has_work_for_helper() const noexcept {
  if (!options_.purge_thread || space_.refuses_purge()) return false;
  const bool ages = options_.purge_delay_ms > 0;
  if (ages && (look_is_wanted_.load() || dirty_bytes() >= kWorthAThread)) return true;
  return space_.delayed_bytes() >= kWorthAThread;
}

template <class Policy, class Above>
bool Engine<Policy, Above>::send_helper_away(Wait wait) noexcept {
  // Once asked to, it may end before any later check.
  const bool was_there = !helper_.is_none();
  helper_.template keep_away<Platform>();
  bool is_gone = false;
  if (wait == Wait::yes && !is_interrupting()) is_gone = space_.platform().wait_for_helper();
  // The helper of a parent from which a bare system call cloned this process cannot say that it
  // ends.
  if (is_gone && helper_.is_running()) helper_.end();
  const bool is_often = fork_pause_.begin(space_.platform().now_ms());
  if (was_there && is_gone && !is_often) {
    give_back_kept_of(Keepers::all);
    if (options_.purge_delay_ms > 0) space_.purge(0, 0, space_.dirty_bytes());
  }
  fork_pause_.leave(dirty_bytes());
  return was_there && is_gone;
}

// Runs until little is left to purge and slabs are at rest, or until it is kept away. Uses nothing
// of the thread that started it; see os/linux/helper.hpp.
template <class Policy, class Above>
void Engine<Policy, Above>::purge_on_helper(void* engine) noexcept {
  Engine& self = *static_cast<Engine*>(engine);
  if constexpr (os::Following<Platform>) Platform::begin_helper();
  for (;;) {
    self.purge_until_done();
    // A domain reserves before it looks for a running helper, and no other helper starts before
    // this one has ended: so this one frees what is kept.
    self.helper_.leave();
    while (self.kept_bytes_.load() != 0 && !self.may_keep() && !self.helper_.is_kept_away()) {
      self.give_back_kept_of(Keepers::all);
      if (self.kept_bytes_.load() != 0) self.helper_.template sleep_ms<Platform>(1);
    }
    if (self.helper_.is_kept_away()) return self.helper_.end();
    if (self.kept_bytes_.load() == 0) {
      self.maybe_purge();
      self.helper_.end();
      // A thread that wanted a helper meanwhile relied on this one.
      if (!self.has_work_for_helper() || self.helper_.begin() == 0) return;
    }
    self.helper_.go_on();
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::purge_until_done() noexcept {
  std::uint64_t rested_ms = space_.platform().now_ms();
  std::uint64_t forgot_ms = rested_ms;
  bool has_walked = false;
  bool moving = true;
  while ((moving || has_work_for_helper()) && !helper_.is_kept_away()) {
    const bool ages = options_.purge_delay_ms > 0;
    if (!ages && !has_work_for_helper()) break;
    const auto delay = ages ? static_cast<std::uint32_t>(options_.purge_delay_ms) : kLongestNapMs;
    // Spans that are due a little later are worth waiting for: few, larger steps. A slab is at rest
    // if it has not changed for half of the delay.
    const std::uint32_t wait = ages ? space_.next_purge_in(delay) : ~0U;
    const std::uint32_t longest = delay / 2 + 1;
    const std::uint32_t nap = wait < longest ? wait + delay / 8 + 1 : longest;
    const std::uint32_t delayed = space_.delayed_bytes() != 0 ? space_.next_delayed_in() : ~0U;
    helper_.template sleep_ms<Platform>(delayed < nap ? delayed + 1 : nap);
    if (helper_.is_kept_away()) break;
    if (kept_short_.exchange(false)) give_back_kept_of(Keepers::greedy);
    // In steps, so that memory that is reused meanwhile stays; and far enough below the budget not
    // to be woken for each span.
    const std::size_t budget = purge_budget();
    const bool above = space_.dirty_bytes_above(budget) != 0;
    const std::size_t most = above ? budget - headroom(budget) : budget;
    while (ages && !helper_.is_kept_away() &&
           space_.purge(delay, most, kHelperStep) >= kHelperStep) {
    }
    while (!helper_.is_kept_away() && space_.purge_delayed(kHelperStep, false) >= kHelperStep) {
    }
    // A system that refuses to purge is not asked again.
    if (space_.refuses_purge()) break;
    if (ages && holes_are_wanted_.exchange(false)) purge_holes();
    const std::uint64_t now_ms = space_.platform().now_ms();
    if (ages && now_ms - rested_ms < delay / 2) continue;
    rested_ms = now_ms;
    if constexpr (os::Following<Platform>) Platform::follow_rights();
    if (now_ms - forgot_ms >= delay) {
      forgot_ms = now_ms;
      space_.forget_peak();
    }
    look_at_kept();
    look_is_wanted_.store(false);
    has_walked = true;
    moving = ages && empty_resting();
    moving = (ages && collect_resting()) || moving;
    reap_at_rest();
    moving = (ages && purge_resting()) || moving;
  }
  // Work for the next helper.
  if (moving && has_walked) look_is_wanted_.store(true);
  // Twice, since the next helper does not know the age of the peak.
  space_.forget_peak();
  space_.forget_peak();
}

template <class Policy, class Above>
std::size_t Engine<Policy, Above>::trim(Domain& domain) noexcept {
  give_up(domain);
  give_up_kept();
  return space_.purge_free();
}

template <class Policy, class Above>
void Engine<Policy, Above>::collect(Domain& domain) noexcept {
  give_up(domain);
  maybe_purge();
}

template <class Policy, class Above>
void Engine<Policy, Above>::give_up(Domain& domain) noexcept {
  SlowPath slow{domain, gate_};
  give_up_stocks(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::check_stocks(Domain& domain) noexcept {
  // A signal handler that calls exit() may have interrupted a slow path.
  if (domain.in_slow_path.load(std::memory_order_relaxed)) return;
  ending_.store(true, std::memory_order_relaxed);
  SlowPath slow{domain, gate_};
  return_stocks(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::return_stocks(Domain& domain) noexcept {
  send_all(domain);
  collect_inbox(domain);
  for (ClassIndex c = 0; c < kClasses; ++c) {
    for (Magazine* const magazine : {&domain.magazines[c], &domain.freed[c]}) {
      flush(domain, *magazine, c, magazine->count());
    }
  }
}

// Frees all free memory of the domain that can be reached.
template <class Policy, class Above>
void Engine<Policy, Above>::give_up_stocks(Domain& domain) noexcept {
  return_stocks(domain);
  give_back_kept(domain.kept);
  for (ClassIndex c = 0; c < kClasses; ++c) {
    for_each_slab(domain.bins()[c], [&](Slab& slab) noexcept {
      if (slab.is_empty()) retire(domain, domain.bins()[c], slab);
    });
  }
  reap_orphans(~0U);
}

}  // namespace allod::heap
