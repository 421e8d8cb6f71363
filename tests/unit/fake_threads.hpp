// The clock of the fake, its processors, and who runs on them: the one thread of a test, which says
// who it is, and the helper, which runs when the test says so.
#pragma once

#include <array>
#include <atomic>
#include <utility>

#include "fake_calls.hpp"

namespace allod::os {

class FakeThreads : public FakeCalls {
 public:
  // --- what a test says, and asks ---------------------------------------------------------------

  void set_processors(std::uint32_t count, std::uint32_t quota) noexcept {
    processors_ = count;
    quota_ = quota;
  }
  // Memory nodes, and that of all callers from now on.
  static void set_nodes(std::uint32_t count) noexcept { nodes_ = count; }
  static void set_node(std::uint32_t node) noexcept { node_ = node; }
  void advance_clock(std::uint64_t milliseconds) noexcept { now_ms_ += milliseconds; }
  // Who calls from now on.
  void set_thread(std::uint32_t id) noexcept { thread_ = acting_ = id; }
  // Calls of futex_wake(), whatever for.
  [[nodiscard]] static std::uint64_t wakes() noexcept { return wakes_; }
  [[nodiscard]] bool helper_waits() const noexcept { return helper_ != nullptr; }
  // Runs what start_helper() was given, to its end; whenever it sleeps, the clock moves on.
  void run_helper() noexcept {
    always_check(helper_ != nullptr, "no helper was started");
    FakeThreads* const outer = running_;
    running_ = this;
    helper_(helper_argument_);
    running_ = outer;
    helper_ = nullptr;
  }

  // --- the concept ------------------------------------------------------------------------------

  [[nodiscard]] std::uint64_t now_ms() const noexcept { return now_ms_; }
  void after_fork_in_child() noexcept { helper_ = nullptr; }
  [[nodiscard]] std::uint32_t thread_id() const noexcept { return thread_; }
  [[nodiscard]] std::uint32_t processors() const noexcept { return processors_; }
  [[nodiscard]] std::uint32_t processor_quota() const noexcept { return quota_; }
  [[nodiscard]] static std::uint32_t processor() noexcept {
    return static_cast<std::uint32_t>(acting_ % 2);
  }
  [[nodiscard]] static std::uint32_t nodes() noexcept { return nodes_; }
  [[nodiscard]] static std::uint32_t node() noexcept { return node_; }
  [[nodiscard]] static std::uint32_t node_of(std::uint32_t) noexcept { return node_; }
  [[nodiscard]] bool start_helper(void (*function)(void*), void* argument) noexcept {
    if (fails(Call::start_helper, 0) || helper_ != nullptr) return false;
    helper_ = function;
    helper_argument_ = argument;
    return true;
  }
  [[nodiscard]] bool wait_for_helper() noexcept {
    if (running_ == this) return false;
    if (helper_ != nullptr) run_helper();
    return true;
  }

  struct Restartable {
    static bool close() noexcept { return ++closed != 0; }
    static void open() noexcept { --closed; }
    static inline int closed = 0;
  };
  [[nodiscard]] bool start_barriers() noexcept { return true; }
  void barrier() noexcept { observe(Call::barrier); }
  // The other threads of a test run inside its observer, or not at all.
  void yield() noexcept { observe_yield(); }
  static void* self() noexcept { return &own_word(); }
  static void*& own_word() noexcept { return own_words_[acting_ % own_words_.size()]; }

  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    always_check(word->load() != expected, "the only thread would wait for ever");
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    always_check(running_ != nullptr, "only a helper may wait for time to pass");
    if (word->load() != expected) return;
    running_->advance_clock(milliseconds);
    running_->observe(Call::wait);
  }
  // Other threads may nap: no time passes.
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    if (running_ == nullptr) return;
    futex_wait_ms(word, expected, static_cast<std::uint32_t>((microseconds + 999) / 1000));
  }
  [[nodiscard]] static std::uint64_t block_signals() noexcept {
    return std::exchange(blocked_signals_, ~std::uint64_t{0});
  }
  static void restore_signals(std::uint64_t mask) noexcept { blocked_signals_ = mask; }
  [[nodiscard]] static std::uint64_t blocked_signals() noexcept { return blocked_signals_; }
  static void futex_wake(std::atomic<std::uint32_t>*, int) noexcept { ++wakes_; }

 protected:
  constexpr FakeThreads() noexcept = default;
  ~FakeThreads() {
    own_words_ = {};
    nodes_ = 1;
    node_ = 0;
  }

  void begin_threads() noexcept { acting_ = thread_; }

 private:
  std::uint32_t processors_ = 2;
  std::uint32_t quota_ = 0;
  std::uint64_t now_ms_ = 1000;
  std::uint32_t thread_ = 1;
  void (*helper_)(void*) = nullptr;
  void* helper_argument_ = nullptr;

  static inline std::uint32_t acting_ = 1;
  static inline std::uint32_t nodes_ = 1;
  static inline std::uint32_t node_ = 0;
  static inline std::array<void*, 64> own_words_{};
  static inline thread_local FakeThreads* running_ = nullptr;
  static inline std::uint64_t wakes_ = 0;
  static inline std::uint64_t blocked_signals_ = 0;
};

}  // namespace allod::os
