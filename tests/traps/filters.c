// System calls that fail. A seccomp filter cannot be taken back, so each case is a process that
// ends with it.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

#define FIELD(name) ((unsigned)offsetof(struct seccomp_data, name))
#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (unsigned)(value))
#define FAIL_WITH(error) RETURN(SECCOMP_RET_ERRNO | (unsigned)(error))

// From here on, this is what comes of the system calls.
static void filter(const int* calls, size_t count, unsigned outcome) {
  struct sock_filter instructions[64];
  size_t length = 0;
  CHECK(count * 2 + 2 <= sizeof instructions / sizeof *instructions, "too many calls");
  instructions[length++] = (struct sock_filter)LOAD(FIELD(nr));
  for (size_t i = 0; i < count; ++i) {
    instructions[length++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
    instructions[length++] = (struct sock_filter)RETURN(outcome);
  }
  instructions[length++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
  filter_system_calls(instructions, length);
}

// From here on, the system calls fail with the error.
static void refuse(const int* calls, size_t count, int error) {
  filter(calls, count, SECCOMP_RET_ERRNO | (unsigned)error);
}

static void refuse_one(int call, int error) { refuse(&call, 1, error); }

// From here on, mmap fails with ENOMEM for a length beyond `most` whose protection shares a bit
// with `protection`, or whatever the protection when that is 0.
static void refuse_long_mappings(unsigned most, unsigned protection) {
  struct sock_filter any[] = {
      LOAD(FIELD(nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
      // Arguments are 64 bits wide; both supported machines are little-endian.
      LOAD(FIELD(args[1]) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
      LOAD(FIELD(args[1])),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 0, 1),
      FAIL_WITH(ENOMEM),
      RETURN(SECCOMP_RET_ALLOW),
  };
  struct sock_filter protected[] = {
      LOAD(FIELD(nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 7),
      LOAD(FIELD(args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, protection, 0, 5),
      LOAD(FIELD(args[1]) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
      LOAD(FIELD(args[1])),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 0, 1),
      FAIL_WITH(ENOMEM),
      RETURN(SECCOMP_RET_ALLOW),
  };
  if (protection == 0) {
    filter_system_calls(any, sizeof any / sizeof *any);
  } else {
    filter_system_calls(protected, sizeof protected / sizeof *protected);
  }
}

// All that a program does in its life, and has to succeed.
static void live(void) {
  struct block_set set;
  allocate_set(&set, 1);
  exercise(1, 5000);
  for (uintptr_t i = 0; i < 5; ++i) {
    run_thread(exercise_thread, (void*)i);
  }
  for (size_t size = 64 * KIB; size <= 32 * MIB; size *= 2) {
    unsigned char* block = obtain(size);
    fill(block, size, 1);
    block = hidden(realloc(block, size * 2));
    CHECK(block != NULL && holds(block, size, 1), "realloc to %zu bytes", size * 2);
    fill(block, size * 2, 1);
    block = hidden(realloc(block, size / 2));
    CHECK(block != NULL && holds(block, size / 2, 1), "realloc to %zu bytes", size / 2);
    free(block);
    block = hidden(calloc(1, size));
    CHECK(block != NULL && is_zero(block, size), "calloc(1, %zu)", size);
    free(block);
    void* aligned = hidden(aligned_alloc(MIB, size));
    CHECK(aligned != NULL && is_aligned(aligned, MIB), "aligned_alloc(1 MiB, %zu)", size);
    free(aligned);
  }
  malloc_trim(0);
  verify_set(&set);
  pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    free_set(&set);
    exercise(2, 2000);
    _exit(0);
  }
  expect_success(child);
  free_set(&set);
}

// Runs a life with a filter from the start of the process.
static void live_with(void (*filter)(void)) {
  if (!is_second_stage()) {
    run_second_stage(filter);
    return;
  }
  live();
}

static void refuse_madvise_einval(void) { refuse_one(SYS_madvise, EINVAL); }
static void refuse_madvise_eperm(void) { refuse_one(SYS_madvise, EPERM); }
static void refuse_madvise_enosys(void) { refuse_one(SYS_madvise, ENOSYS); }
static void refuse_mremap(void) { refuse_one(SYS_mremap, ENOMEM); }
static void refuse_mremap_enosys(void) { refuse_one(SYS_mremap, ENOSYS); }
static void refuse_munmap(void) { refuse_one(SYS_munmap, ENOMEM); }
static void refuse_munmap_einval(void) { refuse_one(SYS_munmap, EINVAL); }

CASE(madvise_is_invalid) { live_with(refuse_madvise_einval); }
CASE(madvise_is_forbidden) { live_with(refuse_madvise_eperm); }
CASE(madvise_is_missing) { live_with(refuse_madvise_enosys); }
CASE(mremap_fails) { live_with(refuse_mremap); }
CASE(mremap_is_missing) { live_with(refuse_mremap_enosys); }
CASE(munmap_fails) { live_with(refuse_munmap); }
CASE(munmap_is_invalid) { live_with(refuse_munmap_einval); }

// What a kernel may lack, or a sandbox forbid, without a program having to end.
static const int kOptionalCalls[] = {
    SYS_membarrier,      SYS_rseq,          SYS_getrandom,         SYS_getcpu,
    SYS_sysinfo,         SYS_get_mempolicy, SYS_sched_getaffinity, SYS_set_mempolicy,
    SYS_mbind,           SYS_userfaultfd,   SYS_memfd_create,      SYS_getrusage,
    SYS_process_madvise, SYS_mincore,
};
static void refuse_optional_calls(void) {
  refuse(kOptionalCalls, sizeof kOptionalCalls / sizeof *kOptionalCalls, ENOSYS);
}
static void forbid_optional_calls(void) {
  refuse(kOptionalCalls, sizeof kOptionalCalls / sizeof *kOptionalCalls, EPERM);
}

CASE(optional_calls_are_missing) { live_with(refuse_optional_calls); }
CASE(optional_calls_are_forbidden) { live_with(forbid_optional_calls); }

// The second filter could not be installed if the first refused prctl; none is needed after it.
static void refuse_prctl(void) { refuse_one(SYS_prctl, EINVAL); }
CASE(prctl_fails) { live_with(refuse_prctl); }

// Mappings longer than a program of moderate size needs: every reservation is refused.
static void refuse_mappings_over_1_gib(void) { refuse_long_mappings(1024u * MIB, 0); }
static void refuse_mappings_over_80_mib(void) { refuse_long_mappings(80u * MIB, 0); }
CASE(reservations_over_1_gib_are_refused) { live_with(refuse_mappings_over_1_gib); }
CASE(reservations_over_80_mib_are_refused) { live_with(refuse_mappings_over_80_mib); }

// As under strict overcommit: what is writable counts, whether it is used or not.
static void refuse_writable_over_80_mib(void) { refuse_long_mappings(80u * MIB, PROT_WRITE); }
CASE(writable_reservations_are_refused) { live_with(refuse_writable_over_80_mib); }

enum { kMost = 64 * 1024 };
static void* blocks[kMost];

// Allocates blocks of one size until malloc refuses, writing a byte to each; returns how many.
static size_t allocate_until_refused(size_t size, size_t most) {
  for (size_t i = 0; i < most; ++i) {
    errno = 0;
    blocks[i] = hidden(malloc(size));
    if (blocks[i] == NULL) {
      CHECK(errno == ENOMEM, "malloc(%zu) set errno to %d", size, errno);
      return i;
    }
    *(unsigned char*)blocks[i] = 1;
  }
  return most;
}

static void refuse_new_memory(void) {
  static const int calls[] = {SYS_mmap, SYS_mremap, SYS_mprotect};
  // brk does not fail as other calls do, and is refused by a limit.
  const struct rlimit none = {0, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_DATA, &none) == 0, "setrlimit");
  refuse(calls, sizeof calls / sizeof *calls, ENOMEM);
}

CASE(no_new_memory) {
  struct block_set set;
  allocate_set(&set, 1);
  void* small = obtain(100);
  unsigned char* large = obtain(5 * MIB);
  fill(large, 5 * MIB, 1);
  refuse_new_memory();
  // More than any reservation can hold is refused by every function.
  size_t beyond = (size_t)1 << 44;
  void* stored = &stored;
  errno = 0;
  CHECK(hidden(malloc(beyond)) == NULL && errno == ENOMEM, "malloc(%zu)", beyond);
  errno = 0;
  CHECK(hidden(calloc(16, beyond / 16)) == NULL && errno == ENOMEM, "calloc(%zu)", beyond);
  errno = 0;
  CHECK(hidden(realloc(hidden(large), beyond)) == NULL && errno == ENOMEM, "realloc(p, %zu)",
        beyond);
  CHECK(holds(large, 5 * MIB, 1), "a failing realloc changed the block");
  errno = 0;
  CHECK(hidden(memalign(4096, beyond)) == NULL && errno == ENOMEM, "memalign(%zu)", beyond);
  CHECK(posix_memalign(&stored, 4096, beyond) == ENOMEM && stored == &stored, "posix_memalign(%zu)",
        beyond);
  // What was reserved before may still be had, and then no more.
  static const size_t sizes[] = {40 * MIB, MIB, 100 * KIB, 10000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    size_t count = allocate_until_refused(sizes[i], kMost);
    CHECK(count < kMost, "blocks of %zu bytes have no end", sizes[i]);
    for (size_t j = 0; j < count; ++j) {
      errno = 12345;
      free(blocks[j]);
      CHECK(errno == 12345, "free set errno to %d", errno);
    }
    CHECK(allocate_until_refused(sizes[i], count / 2) == count / 2,
          "%zu freed blocks of %zu bytes cannot be had again", count, sizes[i]);
    for (size_t j = 0; j < count / 2; ++j) {
      free(blocks[j]);
    }
  }
  free(small);
  small = obtain(100);
  free(small);
  free(large);
  free_set(&set);
}

// The thread's first allocation is refused, or made of what there is.
static void* allocate_what_there_is(void* argument) {
  (void)argument;
  for (size_t size = 1; size < 8 * MIB; size = size * 2 + 1) {
    errno = 0;
    void* block = hidden(malloc(size));
    CHECK(block != NULL || errno == ENOMEM, "malloc(%zu) set errno to %d", size, errno);
    free(block);
  }
  return NULL;
}

// Filters hold for a thread and those it starts, so it is the threads that install one here.
static void* refuse_then_allocate(void* argument) {
  refuse_new_memory();
  return allocate_what_there_is(argument);
}

CASE(no_new_memory_for_a_new_thread) {
  for (size_t i = 0; i < 5; ++i) {
    run_thread(refuse_then_allocate, NULL);
    const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_DATA, &any) == 0, "setrlimit");
  }
  exercise(1, 5000);
}

// So much that a helper thread of the allocator's is due.
static void free_much(void) {
  for (size_t i = 0; i < 400; ++i) {
    blocks[i] = obtain(MIB);
    memset(blocks[i], 1, MIB);
  }
  for (size_t i = 0; i < 400; ++i) {
    free(blocks[i]);
  }
}

// A helper thread of the allocator's cannot be started; programs without threads go on.
CASE(threads_cannot_be_started) {
  static const int calls[] = {SYS_clone3, SYS_clone};
  exercise(1, 1000);
  refuse(calls, 2, EAGAIN);
  for (int round = 0; round < 5; ++round) {
    free_much();
    exercise(2, 2000);
  }
}

static atomic_int answered;

static void answer(int signal, siginfo_t* information, void* context) {
  (void)signal, (void)information;
  mcontext_t* machine = &((ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
  machine->gregs[REG_RAX] = -ENOSYS;
#else
  machine->regs[0] = (unsigned long long)-ENOSYS;
#endif
  atomic_fetch_add(&answered, 1);
}

// As in browsers: a handler answers for what the sandbox does not know. A thread that blocks the
// signal would end the process.
CASE(a_handler_answers_for_system_calls) {
  static const int calls[] = {SYS_clone, SYS_clone3, SYS_membarrier, SYS_prctl, SYS_mincore};
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction");
  filter(calls, sizeof calls / sizeof *calls, SECCOMP_RET_TRAP);
  for (int round = 0; round < 3; ++round) {
    free_much();
    usleep(100000);
  }
  CHECK(answered != 0, "the allocator has made none of these calls");
}

// A daemon that root has started gives its rights up, and then forbids what it does not need. A
// helper thread has those rights that are left, and need not ask for them.
CASE(nobody_asks_for_rights_that_were_given_up) {
  static const int calls[] = {SYS_geteuid,   SYS_getresuid, SYS_getresgid,  SYS_setresuid,
                              SYS_setgroups, SYS_openat,    SYS_close_range};
  if (geteuid() != 0) {
    skip_case("was not started by root");
  }
  CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0, "setresuid");
  filter(calls, sizeof calls / sizeof *calls, SECCOMP_RET_KILL_PROCESS);
  for (int round = 0; round < 3; ++round) {
    free_much();
    usleep(200000);
  }
}

// A sandbox that forbids what a program that has started has no need of: files, sockets, processes.
CASE(strict_sandbox) {
  static const int calls[] = {SYS_openat,     SYS_socket, SYS_clone, SYS_clone3,
                              SYS_readlinkat, SYS_execve, SYS_prctl};
  exercise(1, 1000);
  refuse(calls, sizeof calls / sizeof *calls, EPERM);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    struct block_set set;
    allocate_set(&set, seed);
    exercise(seed, 1000);
    free_set(&set);
  }
  malloc_trim(0);
}
