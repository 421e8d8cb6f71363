#include "stop/stop_threads.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "image/thread_files.hpp"
#include "libc/stop_signal.hpp"
#include "stop/signal_action.hpp"
#include "stop/signal_stacks.hpp"
#include "stop/stop_turn.hpp"
#include "stop/thread_state.hpp"

namespace allod {

namespace {

using os::Linux;

constexpr std::size_t kMost = 1 << 15;

// Of a thread that was signalled: its id, how far it has come, and its stack (0: not known). Only
// the thread itself goes on, and nobody when threads are not stopped any more: a signal may come
// late.
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
  // False if it is not for this thread, or not now.
  [[nodiscard]] bool come(std::uint32_t thread, Address stack) noexcept {
    if (!pass(thread, kSignalled, kIsComing)) return false;
    stack_.store(stack);
    return pass(thread, kIsComing, kHasCome);
  }
  void leave(std::uint32_t thread) noexcept { static_cast<void>(pass(thread, kHasCome, kHasLeft)); }
  // Who has not come does not any more.
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

// Apart from what is not zero, so that it takes no place in the library's file.
constinit Place places[kMost] = {};
constinit struct {
  std::atomic<std::uint32_t> signalled{0};
  std::atomic<std::uint32_t> moves{0};  // of threads that come and leave
  std::atomic<std::uint32_t> go{0};
  std::atomic<std::int32_t> process{0};
  int signal = kStopSignal;
} stop;
// A thread that begins to block the signal just before it is sent takes it at any time later. The
// first one is thrown away with its handler; for the second, the handler has to be there.
constinit bool must_stay = false;

// Where the thread is among those that were signalled; kMost: it was not.
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

// Where the stack that was interrupted begins; the frame of the signal, which holds the registers,
// is on it, or on a stack for signals, of which everything counts. Who was in a handler on one
// already has a usual stack besides.
Address used_usual_stack(const ucontext_t& context) noexcept {
  const Address interrupted = used_stack(context);
  if (interrupted - address_of(context.uc_stack.ss_sp) < context.uc_stack.ss_size) {
    return SignalStacks::interrupted();
  }
  const Address here = address_of(__builtin_frame_address(0)) - 256;
  return interrupted - here < (Address{1} << 16) ? here : interrupted;
}

// Nothing here touches errno.
void wait_in_handler(int, siginfo_t*, void* context) {
  // The C library leaves its own signals open in each mask; but who is cancelled would not go on.
  const std::uint64_t all = ~std::uint64_t{0};
  raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, reinterpret_cast<long>(&all), 0, sizeof all);
  // In the child of a fork of which nobody was told, nobody waits.
  if (raw_syscall(SYS_getpid) != stop.process.load()) return;
  const auto self = static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  const std::size_t place = place_of(self);
  // One that was signalled in an earlier stop waits as well, but nobody waits for it.
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

// What the program had for it.
SignalAction action_before;

bool is_ours(const SignalAction& action) noexcept { return action.handler == &wait_in_handler; }

// Does the program wait for the first signal, by signalfd() or sigwait()? When its handler goes, so
// does what is pending. Threads that block all signals tell nothing.
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
  if (is_ours(SignalAction::of(stop.signal))) action_before.set_for(stop.signal);
}
void take(int signal) noexcept {
  stop.signal = signal;
  const unsigned long flags = SA_RESTART | (SignalStacks::are_shared() ? 0 : SA_ONSTACK);
  action_before = SignalAction::calling(&wait_in_handler, flags).set_for(signal);
  // The program has put it back, or it had to stay.
  if (is_ours(action_before)) action_before = {};
}
void take_signal(StoppedThreads::Round round) noexcept {
  const auto has_programs = [](const SignalAction& action) noexcept {
    return action.has_handler() && !is_ours(action);
  };
  if (round == StoppedThreads::Round::again
          ? stop.signal != kStopSignal
          : has_programs(SignalAction::of(kStopSignal)) || is_awaited()) {
    return take(kSecondStopSignal);
  }
  take(kStopSignal);
  // One that has just come.
  if (!has_programs(action_before)) return;
  give_back();
  take(kSecondStopSignal);
}

bool does_not_come(std::uint32_t thread) noexcept {
  const SignalState state{thread, stop.signal};
  return state.is_gone || state.is_held || (state.sleeps && state.is_blocked);
}

// Threads that sleep, and are not stopped: have they run since?
struct Sleeper {
  std::uint32_t thread = 0;
  std::uint64_t switches = 0;  // kRuns: it did not sleep
  Address stack = 0;           // what is in use begins there; 0: not known
};
constexpr std::uint64_t kRuns = ~std::uint64_t{0};
constexpr std::size_t kMostSleepers = 1024;
constexpr std::size_t kArguments = 6;
constinit std::size_t sleeper_count = 0;
constinit bool has_more_sleepers = false;  // than there is room for
constinit Sleeper sleepers[kMostSleepers] = {};
constinit Address arguments[kMostSleepers * kArguments] = {};  // what they have given the system

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

// What becomes of the signal if it is sent to a thread: it comes to its handler, or waits, as the
// thread blocks it, for long if it sleeps. GLib has such a thread in each program. A signal that
// waits would be handed to the program by sigwait() or a signalfd later; and so would one that
// comes when sigwait() is just about to take another, for it has let in both until then. Who sleeps
// in a call that would end is let sleep, and so counts as one that blocks it.
enum class Prospect : std::uint8_t { comes, waits, waits_long, is_held, is_gone };

constinit Waiters waiters;
constinit Runs runs;

struct Candidate {
  // `state` was read just before.
  Candidate(std::uint32_t thread, StoppedThreads::Round round, const SignalState& state) noexcept
      : call{thread, "/syscall"} {
    const bool is_in_call = call.begins_with_digit();
    if (is_in_call) call.read_words(words, kArguments + 1);
    sleeper = {thread, switches_of(state), words[kArguments]};
    prospect = [&]() noexcept {
      if (state.is_gone) return Prospect::is_gone;
      if (state.is_held) return Prospect::is_held;
      if (!state.takes_now) {
        return state.is_blocked && state.sleeps ? Prospect::waits_long : Prospect::waits;
      }
      if (is_in_call) {
        const Interruption how = interruption_of(call.number(""), words, stop.signal);
        const bool is_felt = how == Interruption::takes_it || how == Interruption::is_felt;
        if (is_felt) waiters.note(thread);
        return lets_sleep(how, round) ? Prospect::waits_long : Prospect::comes;
      }
      // The program has dropped privileges: in which call it sleeps is not told.
      if (!call.is_known() && state.sleeps) {
        return lets_sleep(Interruption::is_told, round) ? Prospect::waits_long : Prospect::comes;
      }
      if (!call.has("running")) return Prospect::comes;
      if (waiters.has(thread) || !runs.has_run(thread, state)) return Prospect::waits;
      // Not if it has been on its way into a call, or out, since the first look.
      const SignalState now{thread, stop.signal};
      const bool has_gone_on = !state.sleeps && !now.sleeps && now.switches == state.switches;
      return has_gone_on && now.takes_now ? Prospect::comes : Prospect::waits;
    }();
  }

  // Does it still run, or sleep in the same call? A call that it begins after this look, and before
  // the signal, ends at once.
  [[nodiscard]] bool is_unchanged() const noexcept {
    Address now[kArguments + 1] = {};
    call.read();
    if (call.begins_with_digit()) call.read_words(now, kArguments + 1);
    return memcmp(now, words, sizeof now) == 0;
  }

  ThreadFile call;
  Sleeper sleeper;
  Address words[kArguments + 1] = {};  // arguments of the call, and the stack; 0: it is in none
  Prospect prospect;

 private:
  [[nodiscard]] static bool lets_sleep(Interruption how, StoppedThreads::Round round) noexcept {
    if (how == Interruption::takes_it) return true;
    if (how == Interruption::begins_anew || round == StoppedThreads::Round::only) return false;
    return sleeper_count < kMostSleepers;
  }
};

// The signal waits for those of them that are not gone.
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

// How many of those that have not come will not.
std::uint32_t count_absent() noexcept {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < stop.signalled.load(); ++i) {
    if (!places[i].has_come() && does_not_come(places[i].thread())) ++count;
  }
  return count;
}

// A thread that blocks the signal never comes. One may block it for a moment, and sleep in that: it
// is looked at twice.
void wait_for_stopped() noexcept {
  constexpr int kPatience = 200;
  constexpr int kLooks = 4;  // one each so many milliseconds
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

// Until no thread is found that was not stopped, and could be.
int StoppedThreads::stop_all(Round round) noexcept {
  constexpr int kPatience = 20;  // milliseconds, for those that run with it blocked, or are held
  const auto self = static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  // The list of another namespace has ids that are not those of the calls; and the system leaves
  // some out when one that stands before them ends meanwhile.
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
      if (candidate.prospect == Prospect::is_held) return note();
      // The program has just set up a handler.
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

// Threads that have not come ignore the signal, or find the handler when they do, which lets them
// pass.
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

// The system copies the handlers first, and the memory later: nothing else tells of ours.
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
