// Plays any sequence of calls on a space against a simple model of what is live.
#pragma once

#include <map>

#include "../unit/world.hpp"

namespace allod::test {

// `Choices` decides what happens: a generator of random numbers, or the bytes of a fuzzer. It
// offers below(n), one_in(n) and any_magnitude(most). A broken promise is a failed check.
template <class Choices>
class SpacePlayer {
 public:
  SpacePlayer(Choices& choices, FakeSpace& space) : choices_{choices}, space_{space} {}

  // Chooses the world and starts the space in it.
  [[nodiscard]] bool start() {
    os::Fake& system = space_.platform();
    constexpr std::size_t kPages[] = {4096, 16384, 65536};
    system.set_page_size(kPages[choices_.below(3)]);
    system.set_placement(static_cast<os::Fake::Placement>(choices_.below(3)));
    system.set_purge(static_cast<os::Fake::Purge>(choices_.below(3)));
    system.set_guards(choices_.one_in(2));
    system.set_scattering(choices_.one_in(2));
    system.set_gap(choices_.below(3) * 65536);
    if (choices_.one_in(3)) system.set_address_space_limit((16 + choices_.below(100)) * kMiB);
    if (choices_.one_in(4)) fail_at_random();
    os::Fake::set_nodes(1 + static_cast<std::uint32_t>(choices_.below(3)));
    const bool started = space_.start((1 + choices_.below(16)) * kMiB, choices_.below(16) * kMiB);
    if (!started) system.succeed();
    return started;
  }
  void step() {
    switch (choices_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return allocate();
      case 4:
        return allocate_aligned();
      case 5:
      case 6:
        return allocate_described();
      case 7:
      case 8:
      case 9:
        return free_one();
      case 10:
        return grow();
      case 11:
        return shrink();
      case 12:
        return remap();
      case 13:
        return purge();
      case 14:
        return space_.platform().advance_clock(choices_.below(100));
      default:
        change_node();
        return change_weather();
    }
  }
  void check() { space_.check_invariants(); }
  // Frees everything that is left. What remains must be nothing.
  void finish() {
    check();
    while (!live_.empty()) free(live_.begin());
    check();
    std::size_t metadata = 0;  // slices that have become bookkeeping
    space_.for_each_span([&](const space::Span& span) {
      if (!is_free(span)) metadata += span.size.bytes();
    });
    always_check(space_.counters().used == metadata, "something is used that nobody uses");
    space_.purge(0, 0, ~std::size_t{0});
    check();
  }

 private:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  static constexpr std::size_t kDescriptor = 384;
  static constexpr std::uint32_t kMostSlices = 300;
  static constexpr std::size_t kMostLive = 64;

  struct Live {
    space::Span* span;
    std::uint64_t stamp;
    bool described;
  };
  using Lives = std::map<Address, Live>;

  // The first and the last word of each slice are the only ones that are ever written to.
  template <class Visit>
  static void for_each_mark(const space::Span& span, Slices size, Visit&& visit) {
    const auto visit_open = [&](Address at, std::size_t where) {
      if (at < open_end_of(span)) visit(reinterpret_cast<std::uint64_t*>(at), where);
    };
    for (Address at = span.base; at < span.base + size.bytes(); at += kSliceBytes) {
      visit_open(at, at - span.base);
      visit_open(at + kSliceBytes - 8, at - span.base + 1);
    }
  }
  static void write(Live& live) {
    for_each_mark(*live.span, live.span->size,
                  [&](std::uint64_t* word, std::size_t where) { *word = live.stamp + where; });
  }
  static void expect_kept(const Live& live, Slices size) {
    for_each_mark(*live.span, size, [&](const std::uint64_t* word, std::size_t where) {
      always_check(*word == live.stamp + where, "a span has lost its contents");
    });
  }
  void expect_apart(const space::Span& span) {
    const auto next = live_.lower_bound(span.base);
    always_check(next == live_.end() || end_of(span) <= next->first, "spans overlap");
    if (next == live_.begin()) return;
    const auto before = std::prev(next);
    always_check(end_of(*before->second.span) <= span.base, "spans overlap");
  }
  void expect_led_to(const space::Span& span) {
    for (Address at = span.base; at < end_of(span); at += kSliceBytes) {
      always_check(space_.map().span_of(at + kSliceBytes - 1) == &span, "the map misleads");
    }
  }

  void accept(space::Span* span, Slices size, Slices alignment, bool described) {
    if (span == nullptr) return;
    always_check(span->size >= size, "a span is too small");
    always_check(span->base % alignment.bytes() == 0, "a span is not aligned");
    expect_apart(*span);
    expect_led_to(*span);
    if (span->zero) {
      for_each_mark(*span, span->size, [](const std::uint64_t* word, std::size_t) {
        always_check(*word == 0, "a span that is known to be zero is not");
      });
    }
    space_.map().set_tags(span->base, span->size, space::kHugeTag);
    Live live{span, next_stamp_ += 1'000'000, described};
    write(live);
    live_.emplace(span->base, live);
  }
  Slices some_size() { return {static_cast<std::uint32_t>(choices_.any_magnitude(kMostSlices))}; }
  typename Lives::iterator some_live() {
    auto found = live_.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(choices_.below(live_.size())));
    return found;
  }

  void allocate() {
    if (live_.size() >= kMostLive) return free_one();
    const Slices size = some_size();
    accept(space_.allocate(size, {1}), size, {1}, false);
  }
  void allocate_aligned() {
    if (live_.size() >= kMostLive) return free_one();
    const Slices size = some_size();
    const Slices alignment{1U << choices_.below(9)};
    accept(space_.allocate(size, alignment), size, alignment, false);
  }
  void allocate_described() {
    if (live_.size() >= kMostLive) return free_one();
    const Slices size = some_size();
    const auto filling = choices_.below(2) == 0 ? space::Filling::sparse : space::Filling::dense;
    space::Span* const span = space_.allocate_described(size, filling, kDescriptor);
    const std::size_t guard = space_.guard_bytes(filling, nullptr, false);
    if (span != nullptr && guard != 0 && choices_.one_in(2)) {
      space_.guard(*span, end_of(*span) - guard * (1 + choices_.below(kSliceBytes / guard)));
    }
    accept(span, size, {1}, true);
  }
  void free_one() {
    if (!live_.empty()) free(some_live());
  }
  // Whoever changes the size of a span has it unguarded first, which the system may refuse.
  bool is_open(const Live& live) {
    if (!space_.unguard(*live.span)) return false;
    for_each_mark(*live.span, live.span->size, [&](std::uint64_t* word, std::size_t where) {
      always_check(*word == live.stamp + where || *word == 0, "a guard has left something");
      *word = live.stamp + where;
    });
    return true;
  }
  void free(typename Lives::iterator victim) {
    expect_kept(victim->second, victim->second.span->size);
    space_.free(victim->second.span);
    live_.erase(victim);
  }
  void grow() {
    if (live_.empty()) return;
    Live& live = some_live()->second;
    if (!is_open(live)) return;
    const Slices before = live.span->size;
    const Slices to = before + some_size();
    if (space_.grow(live.span, to)) {
      always_check(live.span->size >= to, "a span has grown too little");
      settle(live, before);
    } else {
      always_check(live.span->size == before, "a span that did not grow is different");
    }
  }
  void shrink() {
    if (live_.empty()) return;
    Live& live = some_live()->second;
    if (!is_open(live)) return;
    const Slices before = live.span->size;
    const Slices to{1 + static_cast<std::uint32_t>(choices_.below(before.count))};
    space_.shrink(live.span, to);
    always_check(live.span->size == to || live.span->size == before, "a span shrank by a part");
    expect_kept(live, live.span->size);
  }
  void remap() {
    if (live_.empty()) return;
    const auto chosen = some_live();
    Live live = chosen->second;
    if (live.described) return;
    const Slices before = live.span->size;
    if (!space_.remap(live.span, before + some_size())) {
      always_check(live.span->base == chosen->first && live.span->size == before,
                   "a span that was not moved is different");
      return expect_kept(live, before);
    }
    live_.erase(chosen);
    settle(live, before);
    live_.emplace(live.span->base, live);
  }
  // After a span has got more slices at its end.
  void settle(Live& live, Slices before) {
    expect_kept(live, before);
    expect_led_to(*live.span);
    space_.map().set_tags(live.span->base, live.span->size, space::kHugeTag);
    write(live);
  }
  void purge() {
    const auto delay = static_cast<std::uint32_t>(choices_.below(100));
    const std::size_t budget = choices_.below(32) * kMiB;
    space_.purge(delay, budget, choices_.below(4) * kMiB + 1);
  }
  void change_node() { os::Fake::set_node(static_cast<std::uint32_t>(choices_.below(3))); }
  void change_weather() {
    os::Fake& system = space_.platform();
    switch (choices_.below(6)) {
      case 0:
        return fail_at_random();
      case 1:
        return system.fail_nth_call(1 + choices_.below(4));
      case 2:
        return system.fail_after_bytes(choices_.below(4) * kMiB);
      default:
        return system.succeed();
    }
  }
  void fail_at_random() {
    const std::size_t seed = choices_.below(1000);
    space_.platform().fail_randomly(seed, static_cast<std::uint32_t>(choices_.below(500)));
  }

  Choices& choices_;
  FakeSpace& space_;
  Lives live_;
  std::uint64_t next_stamp_ = 0;
};

}  // namespace allod::test
