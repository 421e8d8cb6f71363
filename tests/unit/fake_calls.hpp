// What happens at each call of the fake: it is counted, a test sees it, and it may fail.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "allod/base/base.hpp"

namespace allod::os {

class FakeCalls {
 public:
  enum class Call : std::uint8_t {
    reserve,
    reserve_at,
    reserve_zeros,
    commit,
    map,
    unmap,
    purge,
    grow,
    move,
    move_pages,
    renew,
    start_helper,
    yield,
    map_huge,
    lock,
    bind,
    guard,
    unguard,
    shut,
    reopen,
    present,
    wait,  // of the helper, for time to pass
    barrier,
  };
  static constexpr std::size_t kCalls = 23;

  constexpr FakeCalls() noexcept = default;
  FakeCalls(const FakeCalls&) = delete;
  FakeCalls& operator=(const FakeCalls&) = delete;

  // Failures. Only calls that can report one are counted here: all but unmap, yield, wait and
  // barrier.
  // The `nth` call of this kind from now on fails, and only that one; 1 is the next.
  void fail_call(Call kind, std::uint64_t nth) noexcept { fail_kind_[index_of(kind)] = nth; }
  // The `nth` call of whatever kind fails, and only that one.
  void fail_nth_call(std::uint64_t nth) noexcept { fail_any_ = nth; }
  // Everything fails from the `nth` call on.
  void fail_from_call(std::uint64_t nth) noexcept { fail_from_ = nth; }
  // Each call fails with this probability.
  void fail_randomly(std::uint64_t seed, std::uint32_t per_mille) noexcept {
    random_ = seed;
    fail_per_mille_ = per_mille;
  }
  // Everything fails once this many bytes more have been mapped or made usable.
  void fail_after_bytes(std::size_t bytes) noexcept {
    fail_after_bytes_ = bytes;
    fails_after_bytes_ = true;
  }
  void succeed() noexcept {
    fail_kind_ = {};
    fail_any_ = 0;
    fail_from_ = 0;
    fail_per_mille_ = 0;
    fails_after_bytes_ = false;
  }
  // Called at each call, before anything happens; may use what is above the fake.
  void set_observer(std::function<void(Call)> observer) {
    delete observer_;
    observer_ = new std::function<void(Call)>{std::move(observer)};
  }

  [[nodiscard]] std::uint64_t count(Call kind) const noexcept { return counts_[index_of(kind)]; }
  [[nodiscard]] std::uint64_t count_all() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t one : counts_) sum += one;
    return sum;
  }
  [[nodiscard]] std::uint64_t injected_failures() const noexcept { return injected_; }

 protected:
  ~FakeCalls() { delete observer_; }

  void begin_calls() noexcept {
    always_check(!started_, "the platform is started twice");
    started_ = true;
  }
  void check_started() const noexcept {
    always_check(started_, "the platform is used before its start");
  }
  void observe(Call kind) noexcept {
    if (kind != Call::yield) yields_in_a_row_ = 0;
    ++counts_[index_of(kind)];
    if (observer_ != nullptr && *observer_) (*observer_)(kind);
  }
  void observe_yield() noexcept {
    observe(Call::yield);
    always_check(++yields_in_a_row_ < kMostYields, "the only thread waits for others");
  }
  // Counts the call, and decides whether it is to fail. `bytes` is what it would take.
  bool fails(Call kind, std::size_t bytes) noexcept {
    check_started();
    observe(kind);
    bool failed = counts_down(fail_kind_[index_of(kind)]);
    failed |= counts_down(fail_any_);
    if (fail_from_ == 1) {
      failed = true;
    } else if (fail_from_ > 1) {
      --fail_from_;
    }
    failed |= fail_per_mille_ != 0 && next_random() % 1000 < fail_per_mille_;
    if (fails_after_bytes_) {
      if (fail_after_bytes_ < bytes) failed = true;
      fail_after_bytes_ -= failed ? 0 : bytes;
    }
    injected_ += failed ? 1 : 0;
    return failed;
  }
  // SplitMix64, after G. Steele, D. Lea and C. Flood.
  std::uint64_t next_random() noexcept {
    std::uint64_t z = (random_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  static constexpr std::uint32_t kMostYields = 1000;

  static constexpr std::size_t index_of(Call kind) noexcept {
    return static_cast<std::size_t>(kind);
  }
  static bool counts_down(std::uint64_t& counter) noexcept {
    return counter != 0 && --counter == 0;
  }

  bool started_ = false;
  std::array<std::uint64_t, kCalls> fail_kind_{};
  std::uint64_t fail_any_ = 0;
  std::uint64_t fail_from_ = 0;
  std::uint32_t fail_per_mille_ = 0;
  std::size_t fail_after_bytes_ = 0;
  bool fails_after_bytes_ = false;
  std::uint64_t random_ = 0;

  std::array<std::uint64_t, kCalls> counts_{};
  std::uint64_t injected_ = 0;
  std::uint32_t yields_in_a_row_ = 0;
  // Apart, for the fake is constant-initialised.
  std::function<void(Call)>* observer_ = nullptr;
};

}  // namespace allod::os
