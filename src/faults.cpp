#include "faults.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guards.hpp"
#include "hardened.hpp"
#include "process.hpp"

namespace allod::faults {

namespace {

// What there was before. Written before the first fault can come here.
struct sigaction before;

void explain(const void* address) noexcept {
  heap::Misuse misuse{.kind = heap::MisuseKind::access_past_the_end, .address = address};
  bool is_ours = Guards::explain_fault(address, &misuse);
  if constexpr (Policy::kBlockStates)
    is_ours = is_ours || hardened::explain_fault(address, &misuse);
  if (is_ours) ReportToUser::report(misuse);
}

// As if nobody had watched. An access that fails is tried again, and fails again; what another
// process has sent must be sent again.
void leave_to_system(const siginfo_t& info) noexcept {
  struct sigaction action{};
  action.sa_handler = before.sa_handler;
  sigaction(SIGSEGV, &action, nullptr);
  if (info.si_code <= 0) {
    raw_syscall(SYS_tgkill, raw_syscall(SYS_getpid), raw_syscall(SYS_gettid), SIGSEGV);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  // By the processor, and not by a program.
  if (info->si_code > 0) {
    const int error = errno;
    explain(info->si_addr);
    errno = error;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) return leave_to_system(*info);
  before.sa_handler(signal);
}

}  // namespace

void watch() noexcept {
  if (sigaction(SIGSEGV, nullptr, &before) != 0) return;
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_mask = before.sa_mask;
  // On the thread's own stack for signals, where it has one: programs have such stacks to survive
  // the end of the usual one, which must then come to their handler, or to the system.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace allod::faults
