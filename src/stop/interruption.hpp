// The effect of a signal on a system call.
#pragma once

#include <linux/futex.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "allod/os/linux/linux.hpp"

namespace allod {

// How `signal` ends the system call in which a thread sleeps. Its handler has SA_RESTART; see
// signal(7).
enum class Interruption : std::uint8_t {
  begins_anew,
  is_told,  // EINTR, which some callers expect
  is_felt,  // visible to programs that use no signals: EINTR or a short transfer
  takes_it  // sigwait() or the like consumes it
};

// For a descriptor of the program; the sweeper has its own descriptor table. True if unknown, for
// example under a seccomp filter.
inline bool may_have_timeout(Address descriptor, int which) noexcept {
  timeval time{};
  socklen_t size = sizeof time;
  const long process = raw_syscall(SYS_pidfd_open, raw_syscall(SYS_getpid), 0);
  const long socket = raw_syscall(SYS_pidfd_getfd, process, static_cast<long>(descriptor), 0);
  const long failed = raw_syscall(SYS_getsockopt, socket, SOL_SOCKET, which,
                                  reinterpret_cast<long>(&time), reinterpret_cast<long>(&size));
  if (socket >= 0) raw_syscall(SYS_close, socket);
  if (process >= 0) raw_syscall(SYS_close, process);
  return socket < 0 || (failed == 0 && (time.tv_sec != 0 || time.tv_usec != 0));
}
inline bool has_signal(std::uint64_t signals, int signal) noexcept {
  return (signals >> (signal - 1) & 1) != 0;
}
inline bool is_in_set(Address set, int signal) noexcept {
  std::uint64_t signals = 0;
  const iovec to{&signals, sizeof signals};
  const iovec from{reinterpret_cast<void*>(set), sizeof signals};
  raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_gettid), reinterpret_cast<long>(&to), 1,
              reinterpret_cast<long>(&from), 1, 0);
  return has_signal(signals, signal);
}
inline bool waits_with_timeout(const Address* futex) noexcept {
  const int command = static_cast<int>(futex[1]) & FUTEX_CMD_MASK;
  return (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && futex[3] != 0;
}
inline bool waits_for_all(Address flags) noexcept { return (flags & MSG_WAITALL) != 0; }
// `arguments`: those of the system call.
inline Interruption interruption_of(std::uint64_t call, const Address* arguments,
                                    int signal) noexcept {
  const auto felt_if = [](bool is_felt) noexcept {
    return is_felt ? Interruption::is_felt : Interruption::begins_anew;
  };
  switch (call) {
    case SYS_rt_sigtimedwait:
      return is_in_set(arguments[0], signal) ? Interruption::takes_it : Interruption::is_felt;
    case SYS_rt_sigsuspend:
#if defined(SYS_pause)
    case SYS_pause:
#endif
      return Interruption::is_felt;
    case SYS_read:
    case SYS_readv:
#if defined(SYS_accept)
    case SYS_accept:
#endif
    case SYS_accept4:
      return felt_if(may_have_timeout(arguments[0], SO_RCVTIMEO));
    case SYS_recvmsg:
      return felt_if(waits_for_all(arguments[2]) || may_have_timeout(arguments[0], SO_RCVTIMEO));
    case SYS_recvfrom:
    case SYS_recvmmsg:
      return felt_if(waits_for_all(arguments[3]) || may_have_timeout(arguments[0], SO_RCVTIMEO));
    case SYS_connect:
      return felt_if(may_have_timeout(arguments[0], SO_SNDTIMEO));
    // These return how much they have written so far.
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_tee:
    case SYS_vmsplice:
      return Interruption::is_felt;
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
#if defined(SYS_epoll_pwait2)
    case SYS_epoll_pwait2:
#endif
#if defined(SYS_poll)
    case SYS_poll:
    case SYS_epoll_wait:
#endif
#if defined(SYS_select)
    case SYS_select:
#endif
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
#if defined(SYS_semop)
    case SYS_semop:
#endif
#if defined(SYS_semtimedop)
    case SYS_semtimedop:
#endif
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_restart_syscall:  // a call with a timeout, after the process was stopped
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
      return Interruption::is_told;
    // sem_timedwait() reports EINTR. Condition variables and mutexes repeat the call.
    case SYS_futex:
      return waits_with_timeout(arguments) ? Interruption::is_told : Interruption::begins_anew;
    default:
      return Interruption::begins_anew;
  }
}

}  // namespace allod
