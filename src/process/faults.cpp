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

// What there was before. Written before the first fault can come here.
struct sigaction before;

constinit std::atomic<bool> is_watching{false};

// Of a heap that is hardened in a library that is not.
[[nodiscard, maybe_unused]] bool explain_guard(const void* address, heap::Misuse* misuse) noexcept {
  if (!Process::heap().is_guarded(address)) return false;
  *misuse = Process::heap().describe(misuse->kind, address);
  return misuse->block != nullptr || Process::heap().describe_behind(address, misuse);
}

// By a program, and not by the processor.
[[nodiscard]] bool is_sent(const siginfo_t& info) noexcept { return info.si_code <= 0; }

constexpr int kWrongTag = 9;  // SEGV_MTESERR of <asm-generic/siginfo.h>

// False when there was nothing to report.
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

// As if nobody had watched. An access that fails is tried again, and fails again; what another
// process has sent must be sent again, and so must a fault that was reported: while that was
// written, another thread may have opened the page. What is sent comes before the access.
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
  // Faults cannot be ignored, but end the process.
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
  // On the thread's own stack for signals, where it has one: programs have such stacks to survive
  // the end of the usual one, which must then come to their handler, or to the system.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace allod::faults
