// Plays any sequence of calls on a heap, as several threads would make them, against a simple model
// of what is live.
#pragma once

#include <map>

#include "../unit/world.hpp"

namespace allod::test {

// `Choices` as for SpacePlayer. A broken promise is a failed check.
template <class Choices>
class HeapPlayer {
 public:
  using Domain = FakeProgram::Domain;
  using Sizes = FakeProgram::Sizes;

  HeapPlayer(Choices& choices, FakeProgram& program)
      : choices_{choices}, program_{program}, heap_{program.heap()}, system_{program.system()} {}

  // Chooses the world and starts the heap in it; false when it cannot start there.
  [[nodiscard]] bool start() {
    constexpr std::size_t kPages[] = {4096, 16384, 65536};
    system_.set_page_size(kPages[choices_.below(3)]);
    system_.set_placement(static_cast<os::Fake::Placement>(choices_.below(3)));
    system_.set_purge(static_cast<os::Fake::Purge>(choices_.below(3)));
    if (choices_.one_in(3)) system_.set_address_space_limit((24 + choices_.below(100)) * kMiB);
    heap::HeapOptions options;
    options.region_bytes = (1 + choices_.below(8)) * kMiB;
    options.magazine_bytes = std::size_t{1} << (10 + choices_.below(7));
    options.large_cache_bytes = choices_.below(3) * kMiB;
    options.purge_delay_ms = static_cast<std::int32_t>(choices_.below(4)) * 50 - 50;
    options.purge_budget = choices_.below(8) * kMiB;
    options.purge_thread = choices_.one_in(2);
    options.huge_pages_from = choices_.below(8) * kMiB;
    forks_ = choices_.one_in(4);
    if (choices_.one_in(4)) fail_at_random();
    options.nodes = 1 + static_cast<std::uint32_t>(choices_.below(3));
    program_.start(options);
    for (Domain*& domain : domains_) domain = attach();
    if (usable()) return true;
    system_.succeed();
    return false;
  }
  void step() {
    switch (choices_.below(32)) {
      case 0:
        return leave_and_come();
      case 1:
        return static_cast<void>(trim());
      case 2:
        return change_weather();
      case 3:
        os::Fake::set_node(static_cast<std::uint32_t>(choices_.below(3)));
        return system_.advance_clock(choices_.below(100));
      case 4:
        if (system_.helper_waits()) system_.run_helper();
        return;
      case 5:
        if (forks_ && choices_.one_in(8)) fork_as_child();
        return;
      case 6:
      case 7:
        return allocate_aligned();
      case 8:
      case 9:
        return allocate_zeroable();
      case 10:
      case 11:
      case 12:
        return resize();
      default:
        return choices_.below(kMostLive) >= live_.size() ? allocate() : release_one();
    }
  }
  void check() {
    heap_.check_invariants();
    always_check(RecordingReporter::reports.empty(), "misuse was reported where there was none");
  }
  void finish() {
    check();
    system_.succeed();
    for (auto it = live_.begin(); it != live_.end(); it = live_.erase(it)) {
      expect_kept(it->first, it->second, it->second.size);
      release(it->first);
    }
    for (Domain* const domain : domains_) {
      if (domain != nullptr) heap_.detach(*domain);
    }
    Domain* const last = attach();
    if (last != nullptr) heap_.trim(*last);
    check();
    expect_nothing_used();
  }

 private:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  static constexpr std::size_t kMostLive = 400;
  static constexpr std::size_t kLargest = 4 * kMiB;

  struct Live {
    std::size_t size;
    std::uint8_t mark;
  };
  using Lives = std::map<unsigned char*, Live>;

  [[nodiscard]] bool usable() const {
    return std::any_of(std::begin(domains_), std::end(domains_),
                       [](const Domain* domain) { return domain != nullptr; });
  }
  Domain* attach() {
    system_.set_thread(++threads_);
    return heap_.attach();
  }
  // Some thread that has a domain, now the one that acts; null when none has.
  Domain* some_domain() {
    Domain* const domain = domains_[choices_.below(std::size(domains_))];
    if (domain != nullptr) system_.set_thread(domain->thread);
    return domain;
  }
  std::size_t some_size() {
    switch (choices_.below(12)) {
      case 0:
      case 1:
      case 2:
        return choices_.any_magnitude(kLargest);
      case 3:  // blocks that are slabs of their own
        return kMiB / 2 + choices_.below(kMiB / 2);
      case 4:  // and spans, in few sizes
        return kMiB + (1 + choices_.below(4)) * kSliceBytes;
      default:
        return choices_.any_magnitude(2000);
    }
  }

  // A few bytes of each block, the first and the last among them, say whose they are.
  template <class Visit>
  static void for_each_mark(unsigned char* block, std::size_t size, Visit&& visit) {
    if (size == 0) return;
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) visit(block[at]);
  }
  static void write(unsigned char* block, const Live& live) {
    for_each_mark(block, live.size, [&](unsigned char& byte) { byte = live.mark; });
  }
  // After a change of size only what lies in the smaller of both must still be there.
  static void expect_kept(unsigned char* block, const Live& live, std::size_t size) {
    std::size_t at[] = {0, live.size / 2, live.size - 1};
    for (const std::size_t offset : at) {
      always_check(offset >= size || block[offset] == live.mark, "a block has lost its contents");
    }
  }
  void accept(void* memory, std::size_t size, std::size_t alignment) {
    if (memory == nullptr) return;
    auto* const block = static_cast<unsigned char*>(memory);
    always_check(address_of(block) % alignment == 0, "a block is not aligned");
    const std::size_t usable = heap_.usable_size(block);
    always_check(usable >= size, "a block is too small");
    const auto next = live_.lower_bound(block);
    always_check(next == live_.end() || block + usable <= next->first, "blocks overlap");
    if (next != live_.begin()) {
      const auto before = std::prev(next);
      always_check(before->first + heap_.usable_size(before->first) <= block, "blocks overlap");
    }
    const Live live{size, static_cast<std::uint8_t>(1 + ++marks_ % 255)};
    write(block, live);
    live_.emplace(block, live);
  }

  void allocate() {
    Domain* const domain = some_domain();
    if (domain == nullptr) return;
    const std::size_t size = some_size();
    accept(program_.allocate(*domain, size), size, size > 8 ? 16 : 8);
  }
  void allocate_aligned() {
    Domain* const domain = some_domain();
    if (domain == nullptr) return;
    const std::size_t size = some_size();
    const std::size_t alignment = std::size_t{1} << choices_.below(22);
    accept(heap_.allocate_aligned(*domain, size, alignment, nullptr), size, alignment);
  }
  void allocate_zeroable() {
    Domain* const domain = some_domain();
    if (domain == nullptr) return;
    const std::size_t size = some_size();
    bool zero = false;
    void* const block = program_.allocate_zeroable(*domain, size, &zero);
    if (block != nullptr && zero) {
      const auto* const byte = static_cast<const unsigned char*>(block);
      for (std::size_t at = 0; at < size; at += 1 + size / 10'000) {
        always_check(byte[at] == 0, "a block that is known to be zero is not");
      }
    }
    accept(block, size, size > 8 ? 16 : 8);
  }
  typename Lives::iterator some_live() {
    auto found = live_.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(choices_.below(live_.size())));
    return found;
  }
  void release_one() {
    if (live_.empty()) return;
    const auto victim = some_live();
    expect_kept(victim->first, victim->second, victim->second.size);
    release(victim->first);
    live_.erase(victim);
  }
  // By any thread, with or without a domain.
  void release(void* block) {
    Domain* const domain = choices_.one_in(8) ? nullptr : some_domain();
    domain == nullptr ? heap_.release_detached(block) : program_.release(*domain, block);
  }
  void resize() {
    Domain* const domain = some_domain();
    if (domain == nullptr || live_.empty()) return;
    const auto chosen = some_live();
    const Live before = chosen->second;
    const std::size_t size = some_size();
    void* const result = program_.resize(*domain, chosen->first, size);
    if (result == nullptr) {
      return expect_kept(chosen->first, before, before.size);
    }
    expect_kept(static_cast<unsigned char*>(result), before, std::min(before.size, size));
    live_.erase(chosen);
    accept(result, size, 8);
  }
  void leave_and_come() {
    Domain*& domain = domains_[choices_.below(std::size(domains_))];
    if (domain != nullptr) {
      system_.set_thread(domain->thread);
      heap_.detach(*domain);
    }
    domain = attach();
  }
  std::size_t trim() {
    Domain* const domain = some_domain();
    return domain == nullptr ? 0 : heap_.trim(*domain);
  }
  // The test goes on as the child of one of the threads.
  void fork_as_child() {
    Domain* const own = some_domain();
    heap_.before_fork(own);
    heap_.after_fork_in_child(own);
    for (Domain*& domain : domains_) {
      if (domain != own) domain = nullptr;
    }
    forked_ = true;
  }
  void change_weather() {
    switch (choices_.below(6)) {
      case 0:
        return fail_at_random();
      case 1:
        return system_.fail_nth_call(1 + choices_.below(4));
      case 2:
        return system_.fail_after_bytes(choices_.below(4) * kMiB);
      default:
        return system_.succeed();
    }
  }
  void fail_at_random() {
    const std::size_t seed = choices_.below(1000);
    system_.fail_randomly(seed, static_cast<std::uint32_t>(choices_.below(500)));
  }
  void expect_nothing_used() {
    // What lay in the magazines of threads that a child does not have is lost to it.
    if (forked_) return;
    std::size_t users = 0;
    heap_.space().for_each_span([&](const space::Span& span) {
      if (span.state != space::SpanState::used) return;
      const space::Tag tag = heap_.space().map().tag_of(span.base);
      always_check(!heap_.is_kept(span), "a block is kept though all is to go");
      // Slices that have become bookkeeping are nobody's.
      if (space::is_slab(tag) || tag == space::kHugeTag) ++users;
    });
    always_check(users == 0, "something is used that nobody uses");
  }

  Choices& choices_;
  FakeProgram& program_;
  FakeProgram::Heap& heap_;
  os::Fake& system_;
  Domain* domains_[3] = {};
  Lives live_;
  std::uint32_t threads_ = 0;
  std::uint64_t marks_ = 0;
  bool forks_ = false;
  bool forked_ = false;
};

}  // namespace allod::test
