// Cases of other programs, as on a system that cannot do all that this one can.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "functions.h"

// Linux before 6.13 knows no guards without a mapping for each (MADV_GUARD_INSTALL).
CASE(without_light_guards) {
  enum { kGuardInstall = 102 };
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kGuardInstall, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  filter_system_calls(instructions, sizeof instructions / sizeof *instructions);
  execl(getenv("TEST_PROGRAM"), "overruns", getenv("TEST_CASE"), (char*)NULL);
  CHECK(0, "exec");
}
