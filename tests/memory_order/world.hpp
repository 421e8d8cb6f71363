// The library's heap among explored threads: the engine's own headers, on the fake system of
// tests/unit.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "../unit/world.hpp"
#include "explore.hpp"

namespace order {

// The fake system, whose threads are those of a scenario. What they wait for is a step.
class Platform : public allod::os::Fake {
 public:
  static void* self() noexcept { return &own_word(); }
  static void*& own_word() noexcept { return own_words_[order::self()]; }
  [[nodiscard]] std::uint32_t thread_id() const noexcept { return 100 + order::self(); }
  [[nodiscard]] static std::uint32_t processor() noexcept { return order::self() % 2; }

  [[nodiscard]] bool start_barriers() noexcept { return has_barriers; }
  void barrier() noexcept { order::barrier(); }
  void yield() noexcept { order::yield(); }
  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    order::futex_wait(word, expected);
  }
  [[nodiscard]] std::uint64_t now_ms() const noexcept { return passed_ms_; }
  // For the helper, time passes. Others wait for what another thread does.
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    if (order::self() != helper_thread_) return order::yield();
    if (word->load() == expected) passed_ms_ += milliseconds;
    sleeps_.fetch_add(1);
    order::futex_wake(&sleeps_, 1);
  }
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    futex_wait_ms(word, expected, static_cast<std::uint32_t>(microseconds / 1000) + 1);
  }
  static void futex_wake(std::atomic<std::uint32_t>* word, int count) noexcept {
    order::futex_wake(word, count);
  }

  // The helper is a thread of the scenario, which serves one start after the other. As with Linux,
  // a start waits until the last one is gone.
  [[nodiscard]] bool start_helper(void (*function)(void*), void* argument) noexcept {
    for (std::uint32_t gone = kGone; !helper_.compare_exchange_strong(gone, kStarting);
         gone = kGone) {
      order::futex_wait(&helper_, gone);
    }
    function_ = function;
    argument_ = argument;
    helper_.store(kAlive);
    order::futex_wake(&helper_, 1);
    return true;
  }
  static void run_helper() noexcept {
    helper_thread_ = order::self();
    for (;;) {
      const std::uint32_t state = helper_.load();
      if (state == kOver) return;
      if (state != kAlive) {
        order::futex_wait(&helper_, state);
        continue;
      }
      function_(argument_);
      has_returned_.store(1);
      order::futex_wake(&has_returned_, 1);
      helper_.store(kGone);
      order::futex_wake(&helper_, 1);
    }
  }
  // Waits until the helper has slept so many times.
  static void await_sleeps(std::uint32_t count) noexcept {
    for (std::uint32_t now = sleeps_.load(); now < count; now = sleeps_.load()) {
      order::futex_wait(&sleeps_, now);
    }
  }
  // Waits until the helper's function has returned. Its thread may not be gone yet.
  static void await_return() noexcept {
    while (has_returned_.load() == 0) order::futex_wait(&has_returned_, 0);
  }
  // The helper's thread ends when it has nothing to do.
  static void end_helper() noexcept {
    for (std::uint32_t gone = kGone; !helper_.compare_exchange_strong(gone, kOver); gone = kGone) {
      order::futex_wait(&helper_, gone);
    }
    order::futex_wake(&helper_, 1);
  }

  // Takes what is there from whoever wrote it.
  [[nodiscard]] bool purge(void* address, std::size_t bytes) noexcept {
    for (std::size_t at = 0; at < bytes; at += page_size()) {
      static_cast<volatile unsigned char*>(address)[at] = 0;
    }
    return allod::os::Fake::purge(address, bytes);
  }
  [[nodiscard]] bool purge_each(const allod::os::Piece* pieces, std::size_t count) noexcept {
    for (; count > 0; --count, ++pieces) {
      if (!purge(pieces->address, pieces->bytes)) return false;
    }
    return true;
  }

  // Whether all threads can be made to pass a barrier. For the next execution.
  static inline bool has_barriers = false;
  static void forget_threads() noexcept {
    own_words_ = {};
    helper_.store(kGone);
    helper_thread_ = ~0U;
    sleeps_.store(0);
    has_returned_.store(0);
    passed_ms_ = 1000;
  }

 private:
  enum : std::uint32_t { kGone, kStarting, kAlive, kOver };

  static inline std::atomic<std::uint32_t> helper_{kGone};
  static inline unsigned helper_thread_ = ~0U;
  static inline void (*function_)(void*) = nullptr;
  static inline void* argument_ = nullptr;
  static inline std::atomic<std::uint32_t> sleeps_{0};
  static inline std::atomic<std::uint32_t> has_returned_{0};
  static inline std::uint64_t passed_ms_ = 1000;
  static inline std::array<void*, kThreads> own_words_{};
};

struct Reporter {
  static void report(const allod::heap::Misuse&) noexcept { require(false, "a report of misuse"); }
};

struct Policy {
  using Platform = order::Platform;
  using Sizes = allod::sizes::Geometric<std::size_t{1} << 20>;
  using Reporter = order::Reporter;
  static constexpr allod::CheckLevel kChecks = allod::CheckLevel::debug;
};

// A heap, in the same place for each execution.
class World {
 public:
  using Program = allod::test::Program<Policy>;
  using Domain = Program::Domain;
  using Heap = Program::Heap;
  using Lock = Heap::Lock;
  using Sizes = Policy::Sizes;
  static constexpr std::size_t kPage = 4096;

  void begin(bool barriers = false, std::int32_t purge_delay_ms = -1) {
    allod::check_failure_handler = [](const char* what) noexcept {
      require(false, what);
      // Not within an execution's threads: there is no way back.
      std::printf("failure %s\n", what);
      std::fflush(stdout);
      _exit(1);
    };
    Platform::has_barriers = barriers;
    Platform::forget_threads();
    program_ = new (place_) Program;
    allod::heap::HeapOptions options;
    options.region_bytes = std::size_t{1} << 20;
    options.purge_delay_ms = purge_delay_ms;
    program_->start(options);
    // The fake is no part of what is tested, and orders nothing.
    const auto from = reinterpret_cast<std::uintptr_t>(&system());
    const auto end = reinterpret_cast<std::uintptr_t>(place_ + sizeof place_);
    watch(place_, from - reinterpret_cast<std::uintptr_t>(place_));
    watch(reinterpret_cast<const void*>(from + sizeof(Platform)), end - from - sizeof(Platform));
    watch(reinterpret_cast<const void*>(system().arena()), system().arena_bytes());
  }
  void end() { program_->~Program(); }

  [[nodiscard]] Program& program() { return *program_; }
  [[nodiscard]] Heap& heap() { return program_->heap(); }
  [[nodiscard]] Platform& system() { return program_->system(); }

  Domain& attach() {
    Domain* const domain = heap().attach();
    require(domain != nullptr, "no domain");
    return *domain;
  }
  // As programs do it: what they write to a block belongs to them alone.
  void* allocate(Domain& domain, std::size_t size) {
    void* const block = program_->allocate(domain, size);
    require(block != nullptr, "no block");
    *static_cast<volatile int*>(block) = 1;
    return block;
  }
  void release(Domain& domain, void* block) {
    *static_cast<volatile int*>(block) = 2;
    program_->release(domain, block);
  }

 private:
  alignas(64) unsigned char place_[sizeof(Program)];
  Program* program_ = nullptr;
};

}  // namespace order
