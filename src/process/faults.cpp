#include "process/faults.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "instance/process.hpp"
#include "stop/signal_action.hpp"

namespace allod::faults {

namespace {

// The previous action. Written before our handler is installed.
struct sigaction before;

constinit std::atomic<bool> is_watching{false};

// For hardened heaps in the other libraries.
[[nodiscard, maybe_unused]] bool explain_guard(const void* address, heap::Misuse* misuse) noexcept {
  if (!Process::heap().is_guarded(address)) return false;
  *misuse = Process::heap().describe(misuse->kind, address);
  return misuse->block != nullptr || Process::heap().describe_behind(address, misuse);
}

// Sent by a process, not raised by an access.
[[nodiscard]] bool is_sent(const siginfo_t& info) noexcept { return info.si_code <= 0; }

constexpr int kWrongTag = 9;  // SEGV_MTESERR of <asm-generic/siginfo.h>

// Reports the fault. False if it is not ours.
bool explain(const void* address, int code) noexcept {
  heap::Misuse misuse{.kind = heap::MisuseKind::access_past_the_end, .address = address};
  bool is_ours = Guards::explain_fault(address, &misuse);
  if constexpr (Policy::kBlockStates) {
    is_ours = is_ours || (code == kWrongTag ? hardened::explain_wrong_tag(address, &misuse)
                                            : hardened::explain_fault(address, &misuse));
  } else {
    is_ours = is_ours || explain_guard(address, &misuse);
  }
  if (is_ours) ReportToUser::report(misuse);
  return is_ours;
}

// Restores the default action. The access then faults again. A sent signal must be sent again. So
// must a reported fault, since another thread may have opened the page meanwhile. A sent signal is
// delivered before the access is repeated.
void leave_to_system(const siginfo_t& info, bool was_reported) noexcept {
  SignalAction{}.set_for(SIGSEGV);
  if (is_sent(info) || was_reported) {
    raw_syscall(SYS_tgkill, raw_syscall(SYS_getpid), raw_syscall(SYS_gettid), SIGSEGV);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  bool was_reported = false;
  if (!is_sent(*info)) {
    const int error = errno;
    was_reported = explain(info->si_addr, info->si_code);
    errno = error;
  }
  const struct sigaction next = before;
  // A fault cannot be ignored: it ends the process.
  if (next.sa_handler == SIG_IGN && is_sent(*info)) return;
  if (next.sa_handler == SIG_DFL || next.sa_handler == SIG_IGN) {
    return leave_to_system(*info, was_reported);
  }
  if ((static_cast<unsigned>(next.sa_flags) & SA_RESETHAND) != 0) before = {};
  if ((next.sa_flags & SA_SIGINFO) != 0) return next.sa_sigaction(signal, info, context);
  next.sa_handler(signal);
}

}  // namespace

void watch() noexcept {
  if (is_watching.exchange(true) || sigaction(SIGSEGV, nullptr, &before) != 0) return;
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_mask = before.sa_mask;
  // SA_ONSTACK: a program with an alternate signal stack wants to survive a stack overflow, so this
  // handler must run on it too.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace allod::faults
