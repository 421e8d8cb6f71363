// The state of threads from /proc, and how a signal would affect it.
#pragma once

#include "image/thread_files.hpp"
#include "stop/interruption.hpp"

namespace allod {

struct SignalState {
  SignalState(std::uint32_t thread, int signal) noexcept {
    const ThreadFile status{thread, "/status"};
    const auto set_of = [&](const char* key) noexcept { return status.number(key, 16); };
    blocked = set_of("\nSigBlk:\t");
    pending = set_of("\nSigPnd:\t") | set_of("\nShdPnd:\t");
    is_gone = status.is_gone() || status.has("\nState:\tZ") || status.has("\nState:\tX");
    is_held = status.has("\nState:\tD");
    sleeps = status.has("\nState:\tS");
    is_blocked = has_signal(blocked, signal);
    takes_now = !is_blocked && (pending & ~blocked) == 0;
    sleeps_before = status.number("\nvoluntary_ctxt_switches:\t");
    switches = sleeps_before + status.number("\nnonvoluntary_ctxt_switches:\t");
  }
  std::uint64_t blocked;
  std::uint64_t pending;
  bool is_gone;  // or ended, as a main thread that has called pthread_exit()
  bool is_held;  // in uninterruptible sleep, for example the parent of a vfork
  bool sleeps;
  bool is_blocked;
  bool takes_now;
  std::uint64_t sleeps_before;  // voluntary context switches
  std::uint64_t switches;       // all context switches
};

// Threads that in this stop or the last blocked the signal, had another one pending, or slept in a
// call that it would end visibly. If such a thread runs with the signal unblocked, it is probably
// entering or leaving a call: sigwait() unblocks what it waits for before it sleeps, and blocks it
// after it has woken. Between the two, the thread may wait long for a processor.
class Waiters {
 public:
  // Of a signal that a thread is sent.
  enum class Effect : std::uint8_t {
    none,
    is_felt,  // its call would end
    taken,    // the program itself would receive it
  };

  void begin_stop() noexcept { ++stop_; }
  void note(std::uint32_t thread, Effect effect) noexcept {
    for (Waiter& each : waiters_) {
      if (each.thread == thread) {
        each = {thread, stop_, effect};
        return;
      }
    }
    waiters_[next_++ % kMost] = {thread, stop_, effect};
  }
  [[nodiscard]] Effect effect_on(std::uint32_t thread) const noexcept {
    for (const Waiter& each : waiters_) {
      if (each.thread == thread) return stop_ - each.stop <= 1 ? each.effect : Effect::none;
    }
    return Effect::none;
  }

 private:
  struct Waiter {
    std::uint32_t thread;
    std::uint32_t stop;
    Effect effect;
  };
  static constexpr std::size_t kMost = 64;
  Waiter waiters_[kMost] = {};
  std::size_t next_ = 0;
  std::uint32_t stop_ = 1;
};
// Whether a runnable thread has run since it last slept. A thread that was just woken is still in
// its call, which a signal would end, and may wait long for a processor.
class Runs {
 public:
  [[nodiscard]] bool has_run(std::uint32_t thread, const SignalState& state) noexcept {
    const ThreadFile file{thread, "/schedstat"};
    if (!file.is_known()) return true;
    const std::uint64_t begun = file.third_number();
    Run& before = runs_[thread % kMost];
    if (before.thread != thread || before.sleeps != state.sleeps_before) {
      before = {thread, state.sleeps_before, begun};
    }
    const bool is_on_processor = begun > state.switches;
    return is_on_processor || begun > before.begun;
  }

 private:
  struct Run {
    std::uint32_t thread;
    std::uint64_t sleeps;
    std::uint64_t begun;  // how often a processor had begun to run it
  };
  static constexpr std::size_t kMost = 256;
  Run runs_[kMost] = {};
};

}  // namespace allod
