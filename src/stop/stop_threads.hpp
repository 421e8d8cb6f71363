// Stops all other threads of the process for a moment.
#pragma once

#include "allod/os/linux/linux.hpp"

namespace allod {

// The thread that sweeps, see sweep.cpp. It and the purging thread are not stopped: they block the
// signal and hold no data of the program.
using Sweeper = os::LinuxHelper<struct Sweeping>;

// During its lifetime, the other threads wait in a signal handler, with their registers on their
// stacks. Threads that block the signal, or wait for it in sigwait(), are not stopped. One object
// at a time.
class StoppedThreads {
 public:
  // `first` and `again`, the rounds of one sweep, do not stop threads in system calls that a signal
  // would end, since the program would notice. The next round sees the writes of such a thread.
  // `only` stops every thread.
  enum class Round : std::uint8_t { first, again, only };
  explicit StoppedThreads(Round round) noexcept;
  ~StoppedThreads();
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  // 0 if every thread that can be stopped is; else the error due to which some may run unseen.
  [[nodiscard]] int error() const noexcept { return error_; }

  // Start of the used part of the stack within [begin, end); `own_stack` for the caller's own.
  // Returns `begin` if unknown, for example for a thread that runs a handler on an alternate stack.
  [[nodiscard]] Address used_from(Address begin, Address end, Address own_stack) const noexcept;

  // System-call arguments of the sleeping threads. The pointers in them may exist nowhere else.
  [[nodiscard]] const Address* arguments_of_sleepers(std::size_t* count) const noexcept;

  // Whether all threads that were found asleep, and not stopped, have slept since.
  [[nodiscard]] bool have_slept() const noexcept;

  // For the child of a fork, in which no stop is under way.
  static void reset_in_child() noexcept;

 private:
  [[nodiscard]] int stop_all(Round round) noexcept;

  int error_;
};

}  // namespace allod
