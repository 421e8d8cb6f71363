// Steps as the model has them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "search.hpp"

namespace order {

void Search::perform(unsigned thread, std::uint32_t which) {
  Fiber& fiber = fibers_[thread];
  ++steps_;
  fiber.is_asleep = false;
  const Step step = fiber.pending;
  const bool was_load = step.kind == Kind::load;
  was_stale_ = false;
  switch (step.kind) {
    case Kind::fence:
      if (const Order order = weakened(step); order != Order::none) memory_.fence(thread, order);
      break;
    case Kind::yield:
      for (const std::uint32_t location : fiber.looked_at) memory_.refresh(thread, location);
      fiber.looked_at.clear();
      break;
    case Kind::barrier:
      if (!has_barriers_) has_barriers_ = must_begin_anew_ = true;
      if (weakened(step) == Order::none) break;
      for (unsigned i = 1; i <= scenario_.threads; ++i) fibers_[i].is_asleep = false;
      memory_.barrier(thread, scenario_.threads);
      break;
    case Kind::wait:
      perform_wait(thread);
      break;
    case Kind::wake: {
      ++futexes_;
      std::uint64_t left = step.operand;
      for (auto at = sleepers_.begin(); at != sleepers_.end() && left > 0;) {
        if (at->first != step.address) {
          ++at;
          continue;
        }
        fibers_[at->second].state = Fiber::State::ready;
        at = sleepers_.erase(at);
        --left;
        // The woken thread has nothing pending but to go on.
      }
      break;
    }
    default:
      perform_access(thread, which);
  }
  if (!was_load && step.order != Order::none) fiber.last_site = 0;
  if (was_stale_ && step.order == Order::seq_cst && !memory_.is_consistent()) {
    is_over_ = true;  // counted at the end
    return;
  }
  if (memory_.has_race) return fail("data race: an atomic access and a plain one");
  if (fiber.state != Fiber::State::ready) return;
  if (has_barriers_ && step.kind <= Kind::compare) {
    // A barrier may come before the plain accesses that follow.
    go_on_later(fiber);
  } else {
    resume(thread);
  }
}

void Search::perform_access(unsigned thread, std::uint32_t which) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  const std::uint32_t location = locate(step);
  const Order order = weakened(step);
  bool writes = true;
  if (step.kind == Kind::store) {
    memory_.write(thread, location, which, step.operand, order);
  } else {
    const std::uint64_t old = memory_.at(location).stores[which].value;
    if (which != memory_.last(location)) {
      ++fiber.stale[{step.site, location, which}];
      was_stale_ = true;
    }
    fiber.result = old;
    if (step.kind == Kind::modify) {
      memory_.modify(thread, location, which, step.function(old, step.operand), order);
    } else if (step.kind == Kind::compare && old == step.expected) {
      memory_.modify(thread, location, which, step.operand, order);
    } else {
      writes = false;
      const bool is_weakened = order != step.order;
      memory_.read(
          thread, location, which,
          step.kind == Kind::compare ? (is_weakened ? Order::relaxed : step.failure) : order);
    }
  }
  if (step.kind == Kind::load) {
    fiber.repeats =
        fiber.last_site == step.site && fiber.last_location == location && fiber.last_store == which
            ? fiber.repeats + 1
            : 0;
    fiber.last_site = step.site;
    fiber.last_location = location;
    fiber.last_store = which;
  }
  if (!writes) fiber.looked_at.push_back(location);
  if (step.kind == Kind::load) return;
  if (writes) ++stores_;
  // One that did not write may do so in another execution.
  unsigned& writers = writers_[step.address];
  if ((writers & (1U << thread)) != 0) return;
  writers |= 1U << thread;
  const auto readers = private_readers_.find(step.address);
  if (readers != private_readers_.end() && (readers->second & ~(1U << thread)) != 0) {
    must_begin_anew_ = true;
  }
  if (taken_as_final_.contains(step.address)) must_begin_anew_ = true;
}

// The system compares, and puts to sleep, while nobody wakes.
void Search::perform_wait(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (futex_words_.insert(step.address).second) must_begin_anew_ = true;
  ++futexes_;
  const std::uint32_t location = locate(step);
  memory_.refresh(thread, location);
  const Location& place = memory_.at(location);
  if (place.stores[memory_.last(location)].value != step.expected) return;
  fiber.state = Fiber::State::waiting;
  sleepers_.emplace_back(step.address, thread);
  go_on_later(fiber);  // when it is woken
}

}  // namespace order
