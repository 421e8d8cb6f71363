#include "stop/stop_threads.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "image/thread_files.hpp"
#include "libc/stop_signal.hpp"
#include "stop/resting_handler.hpp"
#include "stop/signal_action.hpp"
#include "stop/signal_stacks.hpp"
#include "stop/stop_turn.hpp"
#include "stop/thread_state.hpp"

namespace allod {

namespace {

using os::Linux;

constexpr std::size_t kMost = 1 << 15;

// A signalled thread: its id, its stage, and its stack (0: unknown). Only the thread itself
// advances the stage, until `close` at the end of the stop: a signal may arrive late.
class Place {
 public:
  [[nodiscard]] std::uint32_t thread() const noexcept {
    return static_cast<std::uint32_t>(state_.load());
  }
  [[nodiscard]] bool has_come() const noexcept { return stage() == kHasCome; }
  [[nodiscard]] bool is_over() const noexcept {
    return stage() == kHasLeft || stage() == kIsClosed;
  }
  [[nodiscard]] Address stack() const noexcept { return stack_.load(); }

  void signal(std::uint32_t thread) noexcept { state_.store(thread); }
  // False if it is not for this thread, or not in this stop.
  [[nodiscard]] bool come(std::uint32_t thread, Address stack) noexcept {
    if (!pass(thread, kSignalled, kIsComing)) return false;
    stack_.store(stack);
    return pass(thread, kIsComing, kHasCome);
  }
  void leave(std::uint32_t thread) noexcept { static_cast<void>(pass(thread, kHasCome, kHasLeft)); }
  // Threads that have not come yet are shut out.
  void close() noexcept { static_cast<void>(pass(thread(), kSignalled, kIsClosed)); }

 private:
  enum Stage : std::uint32_t { kSignalled, kIsComing, kHasCome, kHasLeft, kIsClosed };
  [[nodiscard]] Stage stage() const noexcept { return static_cast<Stage>(state_.load() >> 32); }
  bool pass(std::uint32_t thread, Stage from, Stage to) noexcept {
    std::uint64_t expected = std::uint64_t{from} << 32 | thread;
    return state_.compare_exchange_strong(expected, std::uint64_t{to} << 32 | thread);
  }

  std::atomic<std::uint64_t> state_{0};
  std::atomic<Address> stack_{0};
};

// Apart from non-zero data, so that it takes no space in the file (.bss).
constinit Place places[kMost] = {};
constinit struct {
  std::atomic<std::uint32_t> signalled{0};
  std::atomic<std::uint32_t> moves{0};  // arrivals and departures of threads
  std::atomic<std::uint32_t> go{0};
  std::atomic<std::int32_t> process{0};
  int signal = kStopSignal;
} stop;
// Whether the second signal's handler must stay installed. A thread that blocks the signal just
// before it is sent takes it at any later time. Without a handler, the first signal is ignored, but
// the second ends the process.
constinit bool must_stay = false;

// Index of the thread among those signalled, or kMost.
std::size_t place_of(std::uint32_t thread) noexcept {
  const std::size_t count = stop.signalled.load();
  for (std::size_t i = 0; i < count; ++i) {
    if (places[i].thread() == thread) return i;
  }
  return kMost;
}
std::uint32_t count_missing() noexcept {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) count += !places[i].has_come();
  return count;
}
void tell_move() noexcept {
  stop.moves.fetch_add(1);
  Linux::futex_wake(&stop.moves, 1);
}

// Start of the used part of the interrupted stack, including the signal frame, which holds the
// registers. If the frame is on an alternate stack, that stack counts whole, and a thread that was
// already in a handler on it has a usual stack besides.
Address used_usual_stack(const ucontext_t& context) noexcept {
  const Address interrupted = used_stack(context);
  if (interrupted - address_of(context.uc_stack.ss_sp) < context.uc_stack.ss_size) {
    return SignalStacks::interrupted();
  }
  const Address here = address_of(__builtin_frame_address(0)) - 256;
  return interrupted - here < (Address{1} << 16) ? here : interrupted;
}

// Must not touch errno.
void wait_in_handler(int, siginfo_t*, void* context) {
  // The C library leaves its own signals unblocked in every mask, but a cancelled thread would
  // never return from here.
  const std::uint64_t all = ~std::uint64_t{0};
  raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, reinterpret_cast<long>(&all), 0, sizeof all);
  // In a child of a fork that skipped our handlers, nobody would wake this thread.
  if (raw_syscall(SYS_getpid) != stop.process.load()) return;
  const auto self = static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  const std::size_t place = place_of(self);
  // A thread with a signal of an earlier stop waits too, but nobody waits for it.
  const bool counts =
      place < kMost &&
      places[place].come(self, used_usual_stack(*static_cast<ucontext_t*>(context)));
  if (counts) tell_move();
  while (stop.go.load() == 0) Linux::futex_wait(&stop.go, 0);
  if (counts) {
    places[place].leave(self);
    tell_move();
  }
}

// The program's action.
SignalAction action_before;

bool is_ours(const SignalAction& action) noexcept { return action.handler == &wait_in_handler; }
bool is_resting(const SignalAction& action) noexcept {
  return action.has_handler() && action.handler == resting_handler.load();
}

// Whether the program awaits the first signal by signalfd() or sigwait(). Restoring the default
// action would discard a pending one. Threads that block all signals say nothing about this.
bool is_awaited() noexcept {
  bool is_awaited = false;
  for_each_thread([&](std::uint32_t thread) noexcept {
    const SignalState state{thread, stop.signal};
    const bool is_chosen =
        has_signal(state.blocked, kStopSignal) && !has_signal(state.blocked, kSecondStopSignal);
    is_awaited = is_awaited || is_chosen || has_signal(state.pending, kStopSignal);
  });
  return is_awaited;
}

void give_back() noexcept {
  if (stop.signal != kStopSignal && must_stay) return;
  if (!is_ours(SignalAction::of(stop.signal))) return;
  // A signal that a thread has not taken yet goes with the handler.
  if (is_resting(action_before)) SignalAction{}.set_for(stop.signal);
  action_before.set_for(stop.signal);
}
void take(int signal) noexcept {
  stop.signal = signal;
  const unsigned long flags = SA_RESTART | (SignalStacks::are_shared() ? 0 : SA_ONSTACK);
  action_before = SignalAction::calling(&wait_in_handler, flags).set_for(signal);
  // The program has restored our handler, or it had to stay.
  if (is_ours(action_before)) action_before = {};
}
void take_signal(StoppedThreads::Round round) noexcept {
  const auto has_programs = [](const SignalAction& action) noexcept {
    return action.has_handler() && !is_ours(action) && !is_resting(action);
  };
  if (round == StoppedThreads::Round::again
          ? stop.signal != kStopSignal
          : has_programs(SignalAction::of(kStopSignal)) || is_awaited()) {
    return take(kSecondStopSignal);
  }
  take(kStopSignal);
  // The program has just installed a handler.
  if (!has_programs(action_before)) return;
  give_back();
  take(kSecondStopSignal);
}

bool does_not_come(std::uint32_t thread) noexcept {
  const SignalState state{thread, stop.signal};
  return state.is_gone || state.is_held || (state.sleeps && state.is_blocked);
}

// Threads that sleep and are not stopped. The context switches show whether they have run since.
struct Sleeper {
  std::uint32_t thread = 0;
  std::uint64_t switches = 0;  // kRuns: it was running
  Address stack = 0;           // start of its used part; 0: unknown
};
constexpr std::uint64_t kRuns = ~std::uint64_t{0};
constexpr std::size_t kMostSleepers = 1024;
constexpr std::size_t kArguments = 6;
constinit std::size_t sleeper_count = 0;
constinit bool has_more_sleepers = false;  // more than fit
constinit Sleeper sleepers[kMostSleepers] = {};
constinit Address arguments[kMostSleepers * kArguments] = {};  // of their system calls

std::uint64_t switches_of(const SignalState& state) noexcept {
  return state.sleeps || state.is_held ? state.switches : kRuns;
}
void note_sleeper(const Sleeper& sleeper, const Address* its_arguments) noexcept {
  for (std::size_t i = 0; i < sleeper_count; ++i) {
    if (sleepers[i].thread == sleeper.thread) return;
  }
  has_more_sleepers = sleeper_count == kMostSleepers;
  if (has_more_sleepers) return;
  sleepers[sleeper_count] = sleeper;
  Address* const to = arguments + sleeper_count++ * kArguments;
  for (std::size_t i = 0; i < kArguments; ++i) to[i] = its_arguments[i];
}

// The effect of a signal now. The thread handles it (`comes`) or blocks it (`waits`), for long if
// it sleeps, as GLib's signal thread does in every GLib program. The program would receive a
// blocked signal later by sigwait() or signalfd(). It would also receive one that arrives when
// sigwait() is about to return another signal, since until then the thread has both unblocked.
// Threads in calls that a signal would end stay asleep, and so count like threads that block it. A
// thread that goes on running with the signal blocked is not stopped.
enum class Prospect : std::uint8_t { comes, waits, waits_long, is_held, is_gone };

constinit Waiters waiters;
constinit Runs runs;

struct Candidate {
  // `state` must have just been read.
  Candidate(std::uint32_t thread, StoppedThreads::Round round, const SignalState& state) noexcept
      : call{thread, "/syscall"} {
    const bool is_in_call = call.begins_with_digit();
    if (is_in_call) call.read_words(words, kArguments + 1);
    sleeper = {thread, switches_of(state), words[kArguments]};
    prospect = [&]() noexcept {
      if (state.is_gone) return Prospect::is_gone;
      if (state.is_held) return Prospect::is_held;
      if (!state.takes_now) {
        waiters.note(thread, Waiters::Effect::taken);
        return state.is_blocked && state.sleeps ? Prospect::waits_long : Prospect::waits;
      }
      if (is_in_call) {
        const Interruption how = interruption_of(call.number(""), words, stop.signal);
        if (how == Interruption::takes_it) waiters.note(thread, Waiters::Effect::taken);
        if (how == Interruption::is_felt) waiters.note(thread, Waiters::Effect::is_felt);
        return lets_sleep(how, round) ? Prospect::waits_long : Prospect::comes;
      }
      // /proc hides the call of a process that has dropped privileges.
      if (!call.is_known() && state.sleeps) {
        return lets_sleep(Interruption::is_told, round) ? Prospect::waits_long : Prospect::comes;
      }
      if (!call.has("running")) return Prospect::comes;
      const bool is_in_between = waiters.effect_on(thread) != Waiters::Effect::none;
      if (is_in_between || !runs.has_run(thread, state)) return Prospect::waits;
      // Not if it has entered or left a call since the first look.
      const SignalState now{thread, stop.signal};
      const bool has_gone_on = !state.sleeps && !now.sleeps && now.switches == state.switches;
      return has_gone_on && now.takes_now ? Prospect::comes : Prospect::waits;
    }();
  }

  // True if it still runs, or sleeps in the same call. A call that begins after this check and
  // before the signal ends early.
  [[nodiscard]] bool is_unchanged() const noexcept {
    Address now[kArguments + 1] = {};
    call.read();
    if (call.begins_with_digit()) call.read_words(now, kArguments + 1);
    return memcmp(now, words, sizeof now) == 0;
  }

  ThreadFile call;
  Sleeper sleeper;
  Address words[kArguments + 1] = {};  // arguments, then the stack pointer; 0: in no call
  Prospect prospect;

 private:
  [[nodiscard]] static bool lets_sleep(Interruption how, StoppedThreads::Round round) noexcept {
    if (how == Interruption::takes_it) return true;
    if (how == Interruption::begins_anew || round == StoppedThreads::Round::only) return false;
    return sleeper_count < kMostSleepers;
  }
};

// Notes the signalled threads that have not come and have not ended: their signal stays pending.
void note_absent() noexcept {
  const long process = raw_syscall(SYS_getpid);
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) {
    const std::uint32_t thread = places[i].thread();
    if (places[i].has_come() || raw_syscall(SYS_tgkill, process, thread, 0) != 0) continue;
    must_stay = must_stay || stop.signal != kStopSignal;
    const SignalState state{thread, stop.signal};
    const Candidate candidate{thread, StoppedThreads::Round::only, state};
    note_sleeper(candidate.sleeper, candidate.words);
  }
}

// Counts threads that have not come and will not.
std::uint32_t count_absent() noexcept {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) {
    if (!places[i].has_come() && does_not_come(places[i].thread())) ++count;
  }
  return count;
}

// A thread that blocks the signal never comes. But a thread may block it briefly, and sleep while
// it does, so two looks must agree.
void wait_for_stopped() noexcept {
  constexpr int kPatience = 200;
  constexpr int kLooks = 4;  // one look every so many milliseconds
  std::uint32_t absent_before = 0;
  for (int waited = 1; waited <= kPatience; ++waited) {
    const std::uint32_t moves = stop.moves.load();
    if (count_missing() == 0) return;
    Linux::futex_wait_ms(&stop.moves, moves, 1);
    if (waited % kLooks != 0) continue;
    const std::uint32_t absent_now = count_absent();
    const std::uint32_t missing = count_missing();
    if (missing != 0 && absent_now >= missing && absent_before >= missing) return note_absent();
    absent_before = absent_now;
  }
  must_stay = must_stay || stop.signal != kStopSignal;
}

}  // namespace

StoppedThreads::StoppedThreads(Round round) noexcept {
  StopTurn::take();
  stop.signalled.store(0);
  stop.go.store(0);
  sleeper_count = 0;
  has_more_sleepers = false;
  waiters.begin_stop();
  stop.process.store(static_cast<std::int32_t>(raw_syscall(SYS_getpid)));
  take_signal(round);
  error_ = stop_all(round);
}

// Repeats until every thread that can be stopped has been signalled.
int StoppedThreads::stop_all(Round round) noexcept {
  constexpr int kPatience = 20;  // milliseconds, for threads that run with the signal blocked or
                                 // sleep uninterruptibly
  const auto self = static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  // In another PID namespace, /proc lists ids that differ from ours, and never our own. The kernel
  // may also skip threads when one listed before them ends.
  constexpr int kMostWithoutSelf = 8;
  int without_self = 0;
  const long process = raw_syscall(SYS_getpid);
  for (int waited = 0;;) {
    const std::uint32_t before = stop.signalled.load();
    bool has_runner = false;
    bool has_self = false;
    const int error = for_each_thread([&](std::uint32_t thread) noexcept {
      const std::uint32_t place = stop.signalled.load();
      has_self = has_self || thread == self;
      if (thread == self || place == kMost || place_of(thread) != kMost) return;
      if (Linux::Purger::is(thread) || Sweeper::is(thread)) return;
      const SignalState state{thread, stop.signal};
      const Candidate candidate{thread, round, state};
      const auto note = [&]() noexcept { note_sleeper(candidate.sleeper, candidate.words); };
      if (candidate.prospect == Prospect::is_gone) return;
      if (candidate.prospect == Prospect::waits_long) return note();
      if (candidate.prospect != Prospect::comes && waited < kPatience) {
        has_runner = true;
        return;
      }
      const bool would_be_taken = waiters.effect_on(thread) == Waiters::Effect::taken;
      if (candidate.prospect == Prospect::is_held || would_be_taken) return note();
      // The program has just installed a handler.
      if (waited < kPatience && !is_ours(SignalAction::of(stop.signal))) {
        take_signal(StoppedThreads::Round::only);
        has_runner = true;
        return;
      }
      places[place].signal(thread);
      stop.signalled.store(place + 1);
      if (waited < kPatience && !candidate.is_unchanged()) {
        stop.signalled.store(place);
        has_runner = true;
        return;
      }
      if (raw_syscall(SYS_tgkill, process, thread, stop.signal) != 0) stop.signalled.store(place);
    });
    if (error != 0) return error;
    if (stop.signalled.load() == kMost) return EAGAIN;
    if (before != stop.signalled.load()) wait_for_stopped();
    const bool is_last = !has_runner && before == stop.signalled.load();
    if (is_last && has_self) return 0;
    if (is_last && ++without_self == kMostWithoutSelf) return ESRCH;
    if (has_runner && waited++ < kPatience) Linux::futex_wait_ms(&stop.go, 0, 1);
  }
}

// Threads that have not come ignore the signal later, or the handler lets them pass.
StoppedThreads::~StoppedThreads() {
  give_back();
  stop.go.store(1);
  Linux::futex_wake(&stop.go, 0x7fffffff);
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) {
    Place& place = places[i];
    for (place.close(); !place.is_over();) {
      const std::uint32_t moves = stop.moves.load();
      if (!place.is_over()) Linux::futex_wait_ms(&stop.moves, moves, 1);
    }
  }
  StopTurn::give();
}

bool StoppedThreads::have_slept() const noexcept {
  for (std::size_t i = 0; i < sleeper_count; ++i) {
    const Sleeper& sleeper = sleepers[i];
    const std::uint64_t switches = switches_of(SignalState{sleeper.thread, stop.signal});
    if (switches == sleeper.switches && switches != kRuns) continue;
    const std::size_t place = place_of(sleeper.thread);
    if (place == kMost || !places[place].has_come()) return false;
  }
  return !has_more_sleepers;
}

const Address* StoppedThreads::arguments_of_sleepers(std::size_t* count) const noexcept {
  *count = sleeper_count * kArguments;
  return arguments;
}

// The kernel copies handlers before memory, so nothing else in the child tells of our handler.
void StoppedThreads::reset_in_child() noexcept {
  stop.go.store(1);
  give_back();
  StopTurn::give();
}

Address StoppedThreads::used_from(Address begin, Address end, Address own_stack) const noexcept {
  const bool is_own = own_stack >= begin && own_stack < end;
  if (is_own && !SignalStacks::is_on_one()) return own_stack;
  Address from = end;
  const Address interrupted = SignalStacks::interrupted();
  if (interrupted >= begin && interrupted < end) from = interrupted;
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) {
    if (!places[i].has_come()) continue;
    const Address at = places[i].stack();
    if (at >= begin && at < end && at < from) from = at;
  }
  for (std::size_t i = 0; i < sleeper_count; ++i) {
    const Address at = sleepers[i].stack - kRedZone;
    if (at >= begin && at < end && at < from) from = at;
  }
  return from == end ? begin : from;
}

}  // namespace allod
