// Which step comes next.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "search.hpp"

namespace order {

// A load that is repeated in vain, as in a loop that waits, returns the same again. That it returns
// something new is what the first of them may do as well.
bool Search::repeats(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (step.kind != Kind::load || fiber.last_site != step.site || fiber.repeats >= kMostRepeats) {
    return false;
  }
  return fiber.last_location == locate(step) &&
         memory_.may_read(thread, fiber.last_location, fiber.last_store);
}

bool Search::is_immediate(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (repeats(thread)) return true;
  if (has_barriers_) return false;
  switch (step.kind) {
    case Kind::fence:
      return true;
    case Kind::store:
      return !futex_words_.contains(step.address);
    case Kind::load:
    case Kind::modify:
    case Kind::compare: {
      const auto place = writers_.find(step.address);
      const unsigned others = place == writers_.end() ? 0 : place->second & ~(1U << thread);
      if (others != 0 || futex_words_.contains(step.address)) return false;
      private_readers_[step.address] |= 1U << thread;
      return true;
    }
    default:
      return false;
  }
}

void Search::gather_loads(unsigned thread, std::vector<Choice>& out) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  const std::uint32_t location = locate(step);
  const Location& place = memory_.at(location);
  const auto t = static_cast<std::uint8_t>(thread);
  if (repeats(thread)) return out.push_back({t, fiber.last_store});
  // For ever, unless something new comes.
  const bool waits = step.kind == Kind::load && fiber.last_site == step.site &&
                     fiber.last_location == location && fiber.repeats >= kMostRepeats;
  const bool is_woken = fiber.slept_futexes != futexes_ && futex_words_.contains(step.address);
  const std::uint32_t from = fiber.is_asleep && !is_woken ? fiber.slept_stores : 0;
  for (std::size_t i = place.order.size(); i-- > 0;) {
    const std::uint32_t store = place.order[i];
    if (!memory_.may_read(thread, location, store)) break;
    if (store < from || (waits && store == fiber.last_store)) continue;
    if (i + 1 != place.order.size()) {
      const auto seen = fiber.stale.find({step.site, location, store});
      if (seen != fiber.stale.end() && seen->second >= kMostStale) continue;
    }
    const bool changes = step.kind == Kind::modify ||
                         (step.kind == Kind::compare && place.stores[store].value == step.expected);
    if (changes && place.stores[store].is_followed) continue;
    out.push_back({t, store});
  }
}

void Search::gather(unsigned thread, std::vector<Choice>& out) {
  Fiber& fiber = fibers_[thread];
  if (fiber.state != Fiber::State::ready) return;
  const Step& step = fiber.pending;
  const auto t = static_cast<std::uint8_t>(thread);
  switch (step.kind) {
    case Kind::load:
    case Kind::modify:
    case Kind::compare:
      return gather_loads(thread, out);
    case Kind::store: {
      if (fiber.is_asleep && fiber.slept_futexes == futexes_) return;
      std::vector<std::uint32_t> positions;
      memory_.positions(thread, locate(step), positions);
      for (const std::uint32_t position : positions) out.push_back({t, position});
      return;
    }
    case Kind::fence:
      if (!fiber.is_asleep) out.push_back({t, 0});
      return;
    case Kind::wake:
      if (!fiber.is_asleep || fiber.slept_futexes != futexes_) out.push_back({t, 0});
      return;
    case Kind::barrier:
      if (!fiber.is_asleep || fiber.slept_steps != steps_) out.push_back({t, 0});
      return;
    case Kind::wait:
      if (!fiber.is_asleep || fiber.slept_futexes != futexes_ || fiber.slept_stores != stores_) {
        out.push_back({t, 0});
      }
      return;
    case Kind::yield: {
      if (fiber.is_asleep && fiber.slept_stores == stores_) return;
      const auto is_new = [&](std::uint32_t location) {
        return memory_.seen(thread, location) != memory_.last(location);
      };
      const auto& looked_at = fiber.looked_at;
      if (looked_at.empty() || std::any_of(looked_at.begin(), looked_at.end(), is_new)) {
        out.push_back({t, 0});
      }
      return;
    }
  }
}

void Search::put_to_sleep(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  fiber.is_asleep = true;
  fiber.slept_steps = steps_;
  fiber.slept_futexes = futexes_;
  switch (fiber.pending.kind) {
    case Kind::load:
    case Kind::modify:
    case Kind::compare:
      fiber.slept_stores =
          static_cast<std::uint32_t>(memory_.at(locate(fiber.pending)).stores.size());
      break;
    default:
      fiber.slept_stores = static_cast<std::uint32_t>(stores_);
  }
}

std::size_t Search::choose(std::vector<Choice>& choices) {
  if (options_.is_random) return next_random() % choices.size();
  if (depth_ == nodes_.size()) {
    nodes_.emplace_back();
    nodes_.back().choices = choices;
  } else if (nodes_[depth_].choices.size() != choices.size()) {
    std::fprintf(stderr, "an execution does not repeat\n");
    std::abort();
  }
  return nodes_[depth_++].at;
}

// Executes the next step that cannot matter to when others take theirs.
bool Search::run_at_once() {
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    Fiber& fiber = fibers_[thread];
    if (fiber.state != Fiber::State::ready || !is_immediate(thread)) continue;
    std::vector<Choice> choices;
    gather(thread, choices);
    if (choices.empty()) continue;
    perform(thread, choices[choices.size() > 1 ? choose(choices) : 0].which);
    return true;
  }
  return false;
}

bool Search::advance() {
  if (steps_ >= kMostSteps) {
    fail("no end");
    return false;
  }
  if (run_at_once()) return !is_over_;
  if (is_hopeless()) {
    ++result_.redundant;
    is_over_ = true;
    return false;
  }
  std::vector<Choice> choices;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) gather(thread, choices);
  if (choices.empty()) {
    report_stop();
    return false;
  }
  // At random, each thread is as likely as another, and so is the latest store as all others.
  std::size_t chosen;
  if (options_.is_random) {
    const std::size_t any = next_random() % choices.size();
    const unsigned thread = choices[any].thread;
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].thread == thread) own.push_back(i);
    }
    chosen = next_random() % 2 == 0 ? own[0] : own[next_random() % own.size()];
  } else {
    chosen = choices.size() > 1 ? choose(choices) : 0;
    const unsigned thread = choices[chosen].thread;
    for (std::size_t i = 0; i < chosen; ++i) {
      if (choices[i].thread != thread) put_to_sleep(choices[i].thread);
    }
  }
  perform(choices[chosen].thread, choices[chosen].which);
  return true;
}

// Whether a thread waits for something new where nobody writes any more.
bool Search::is_hopeless() {
  if (has_barriers_) return false;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    const Fiber& fiber = fibers_[thread];
    if (fiber.state != Fiber::State::ready || !fiber.is_asleep) continue;
    const Step& step = fiber.pending;
    if (step.kind > Kind::compare || step.kind == Kind::store) continue;
    if (futex_words_.contains(step.address)) continue;
    if (memory_.at(locate(step)).stores.size() > fiber.slept_stores) continue;
    const unsigned writers = writers_[step.address];
    bool is_hopeless = true;
    for (unsigned other = 1; other <= scenario_.threads; ++other) {
      const bool writes = other != thread && (writers & (1U << other)) != 0;
      if (writes && fibers_[other].state != Fiber::State::done) is_hopeless = false;
    }
    if (!is_hopeless) continue;
    taken_as_final_.insert(step.address);
    return true;
  }
  return false;
}

// Nothing can happen any more.
void Search::report_stop() {
  bool is_any = false;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    const Fiber& fiber = fibers_[thread];
    if (fiber.state == Fiber::State::done) continue;
    is_any = true;
    if (fiber.state == Fiber::State::ready && fiber.is_asleep) {
      ++result_.redundant;
      is_over_ = true;
      return;
    }
  }
  if (is_any) fail("threads wait for ever");
}

}  // namespace order
