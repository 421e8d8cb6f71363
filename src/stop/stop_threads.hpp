// All other threads of the process, stopped for a moment.
#pragma once

#include "allod/os/linux/linux.hpp"

namespace allod {

// Sweeps, see sweep.cpp. It is not stopped, and neither is the one that purges: they block its
// signal, and have nothing of the program's.
using Sweeper = os::LinuxHelper<struct Sweeping>;

// While it exists, the other threads wait in a signal handler. What their registers held is on
// their stacks. Those that block the signal go on, and so do those that wait for it in sigwait().
// One at a time.
class StoppedThreads {
 public:
  // A thread sleeps in a call that a signal would end: is it stopped? Not in several rounds, for
  // the program would notice. What such a thread does meanwhile is seen in the next round. Where
  // there is one round only, every thread is stopped.
  enum class Round : std::uint8_t { first, again, only };
  explicit StoppedThreads(Round round) noexcept;
  ~StoppedThreads();
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  // 0 when all are stopped that can be; else the error for which threads may go on unseen.
  [[nodiscard]] int error() const noexcept { return error_; }

  // Of the stack that lies within [begin, end): where what is in use begins; that of the caller at
  // `own_stack`. `begin` when there is none, or it is not known, as that of a thread which has a
  // signal on a stack for signals.
  [[nodiscard]] Address used_from(Address begin, Address end, Address own_stack) const noexcept;

  // What those that were found asleep have given the system: it may stand nowhere else.
  [[nodiscard]] const Address* arguments_of_sleepers(std::size_t* count) const noexcept;

  // Have those that were found asleep, and were not stopped, slept since?
  [[nodiscard]] bool have_slept() const noexcept;

  // In the child of a fork, where whoever was about to stop others is not.
  static void reset_in_child() noexcept;

 private:
  [[nodiscard]] int stop_all(Round round) noexcept;

  int error_;
};

}  // namespace allod
