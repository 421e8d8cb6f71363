/* As much of FreeBSD's libc and thread library as Allod's library asks for, on Linux: preloaded
 * into a program of Linux, the library finds it by the names and versions of FreeBSD's. The numbers
 * are those of FreeBSD's headers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* `ours`, by the name and the version that FreeBSD gives it. */
#define AS(ours, name, version) __asm__(".symver " #ours ", " #name "@" version)
/* The same function as Linux's. */
#if defined(__aarch64__)
#define JUMP_TO(name) "b " name "\n"
#else
#define JUMP_TO(name) "jmp " name "@PLT\n"
#endif
#define SAME(name, version)                      \
  __asm__(".globl same_" #name                   \
          "\n"                                   \
          ".type same_" #name                    \
          ", %function\n"                        \
          "same_" #name ":\n\t" JUMP_TO(#name)); \
  AS(same_##name, name, version)

SAME(abort, "FBSD_1.0");
SAME(bcmp, "FBSD_1.0");
SAME(dladdr, "FBSD_1.0");
SAME(getentropy, "FBSD_1.5");
SAME(getpagesize, "FBSD_1.0");
SAME(memchr, "FBSD_1.0");
SAME(memcpy, "FBSD_1.0");
SAME(memmove, "FBSD_1.0");
SAME(memset, "FBSD_1.0");
SAME(mincore, "FBSD_1.0");
SAME(mlock, "FBSD_1.0");
SAME(mprotect, "FBSD_1.0");
SAME(munmap, "FBSD_1.0");
SAME(nanosleep, "FBSD_1.0");
SAME(poll, "FBSD_1.0");
SAME(pthread_key_create, "FBSD_1.0");
SAME(pthread_self, "FBSD_1.0");
SAME(pthread_setspecific, "FBSD_1.0");
SAME(sched_getcpu, "FBSD_1.7");
SAME(sched_yield, "FBSD_1.0");
SAME(strlen, "FBSD_1.0");
SAME(strnlen, "FBSD_1.1");
SAME(write, "FBSD_1.0");

int* our_error(void) { return &errno; }
AS(our_error, __error, "FBSD_1.0");

void* our_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  enum { kKnown = 2 | 0x10 | 0x1000 | 0x4000 };
  const unsigned power = (unsigned)flags >> 24;
  if ((flags & 0xffffff & ~kKnown) != 0 || (flags & 0x1002) != 0x1002 || file != -1 ||
      offset != 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  int ours = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if ((flags & 0x10) != 0) ours |= (flags & 0x4000) != 0 ? MAP_FIXED_NOREPLACE : MAP_FIXED;
  if (power == 0) return mmap(address, bytes, protection, ours, -1, 0);
  const size_t alignment = (size_t)1 << power;
  char* const raw = mmap(NULL, bytes + alignment, protection, ours, -1, 0);
  if (raw == MAP_FAILED) return raw;
  char* const aligned = (char*)(((uintptr_t)raw + alignment - 1) & -alignment);
  if (aligned != raw) munmap(raw, (size_t)(aligned - raw));
  munmap(aligned + bytes, (size_t)(raw + alignment - aligned));
  return aligned;
}
AS(our_mmap, mmap, "FBSD_1.0");

int our_madvise(void* address, size_t bytes, int advice) {
  return madvise(address, bytes, advice == 8 ? MADV_DONTDUMP : advice == 9 ? MADV_DODUMP : -1);
}
AS(our_madvise, madvise, "FBSD_1.0");

int our_umtx_op(void* word, int operation, unsigned long value, void* bytes, void* timeout) {
  switch (operation) {
    case 15:
      if (timeout != NULL && (uintptr_t)bytes != sizeof(struct timespec)) abort();
      return (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout);
    case 16:
      return (int)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, value);
    default:
      abort();
  }
}
AS(our_umtx_op, _umtx_op, "FBSD_1.0");

int our_clock_gettime(int clock, struct timespec* now) {
  if (clock != 12) abort();
  return clock_gettime(CLOCK_MONOTONIC, now);
}
AS(our_clock_gettime, clock_gettime, "FBSD_1.0");

long our_sysconf(int name) { return name == 58 ? sysconf(_SC_NPROCESSORS_ONLN) : -1; }
AS(our_sysconf, sysconf, "FBSD_1.0");

int our_getrlimit(int resource, struct rlimit* limit) {
  if (resource != 10) abort();
  if (getrlimit(RLIMIT_AS, limit) != 0) return -1;
  if (limit->rlim_cur == RLIM_INFINITY) limit->rlim_cur = INT64_MAX;
  return 0;
}
AS(our_getrlimit, getrlimit, "FBSD_1.0");

int our_affinity(int level, int which, int64_t id, size_t bytes, void* mask) {
  if (level != 3 || which != 2 || id != -1 || bytes != 128) abort();
  return sched_getaffinity(0, bytes, mask);
}
AS(our_affinity, cpuset_getaffinity, "FBSD_1.1");

int our_elevated_rights(void) { return getenv("TEST_ELEVATED") != NULL; }
AS(our_elevated_rights, issetugid, "FBSD_1.0");

int our_thread_id(void) { return gettid(); }
AS(our_thread_id, pthread_getthreadid_np, "FBSD_1.2");

int our_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void)) {
  return pthread_atfork(before, in_parent, in_child);
}
AS(our_atfork, pthread_atfork, "FBSD_1.0");

/* RTLD_DEFAULT and RTLD_NOLOAD have other values. */
void* our_dlsym(void* where, const char* name) {
  (void)where;
  void* const runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return runtime != NULL ? dlsym(runtime, name) : NULL;
}
AS(our_dlsym, dlsym, "FBSD_1.0");
void* our_dlopen(const char* name, int how) {
  return dlopen(name, RTLD_LAZY | ((how & 0x2000) != 0 ? RTLD_NOLOAD : 0));
}
AS(our_dlopen, dlopen, "FBSD_1.0");

/* Sets of signals have 128 bits. They are noted, and nothing else. */
typedef struct {
  uint32_t bits[4];
} signals;
static _Thread_local signals noted;

int our_sigfillset(signals* set) {
  memset(set, 0xff, sizeof *set);
  return 0;
}
AS(our_sigfillset, sigfillset, "FBSD_1.0");
int our_sigemptyset(signals* set) {
  memset(set, 0, sizeof *set);
  return 0;
}
AS(our_sigemptyset, sigemptyset, "FBSD_1.0");
int our_sigaddset(signals* set, int number) {
  set->bits[(number - 1) / 32] |= 1U << (number - 1) % 32;
  return 0;
}
AS(our_sigaddset, sigaddset, "FBSD_1.0");
int our_sigismember(const signals* set, int number) {
  return set->bits[(number - 1) / 32] >> (number - 1) % 32 & 1;
}
AS(our_sigismember, sigismember, "FBSD_1.0");
int our_sigpending(signals* set) { return our_sigemptyset(set); }
AS(our_sigpending, sigpending, "FBSD_1.0");
int our_sigwait(const signals* set, int* number) {
  (void)set;
  (void)number;
  abort();
}
AS(our_sigwait, sigwait, "FBSD_1.0");
int our_sigmask(int how, const signals* set, signals* before) {
  enum { kBlock = 1, kSet = 3, kKill = 9, kStop = 17 };
  if (before != NULL) *before = noted;
  if (set == NULL) return 0;
  for (int i = 0; i < 4; ++i) {
    if (how == kBlock) noted.bits[i] |= set->bits[i];
    if (how == kSet) noted.bits[i] = set->bits[i];
  }
  noted.bits[0] &= ~(1U << (kKill - 1) | 1U << (kStop - 1));
  return 0;
}
AS(our_sigmask, pthread_sigmask, "FBSD_1.0");

/* FreeBSD's pthread_create does not call malloc, but Linux's does. So a thread of our own makes the
 * threads. Between two frees of a block, what it allocates may get that block's memory, and then
 * nobody can know the second free for one. With TEST_ALONE, no thread is made. */
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t has_changed;
  void* (*function)(void*);
  void* argument;
  int is_there;
} maker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0};

static void* make_threads(void* unused) {
  (void)unused;
  for (;;) {
    pthread_mutex_lock(&maker.mutex);
    while (maker.function == NULL) pthread_cond_wait(&maker.has_changed, &maker.mutex);
    void* (*const function)(void*) = maker.function;
    void* const argument = maker.argument;
    maker.function = NULL;
    pthread_mutex_unlock(&maker.mutex);
    pthread_t made;
    if (pthread_create(&made, NULL, function, argument) == 0) pthread_detach(made);
  }
  return NULL;
}
static void none_in_child(void) { maker.is_there = 0; }
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  if (getenv("TEST_ALONE") != NULL) return;
  if (pthread_create(&thread, NULL, make_threads, NULL) != 0) return;
  pthread_atfork(NULL, NULL, none_in_child);
  maker.is_there = 1;
}

int our_create(pthread_t* thread, void* const* wishes, void* (*function)(void*), void* argument) {
  if (*wishes != (void*)1 || !maker.is_there) return EAGAIN;
  *thread = 0;
  pthread_mutex_lock(&maker.mutex);
  const int is_free = maker.function == NULL;
  if (is_free) {
    maker.argument = argument;
    maker.function = function;
    pthread_cond_signal(&maker.has_changed);
  }
  pthread_mutex_unlock(&maker.mutex);
  return is_free ? 0 : EAGAIN;
}
AS(our_create, pthread_create, "FBSD_1.0");
int our_wishes(void** wishes) {
  *wishes = (void*)1;
  return 0;
}
AS(our_wishes, pthread_attr_init, "FBSD_1.0");
int our_no_wishes(void** wishes) {
  *wishes = NULL;
  return 0;
}
AS(our_no_wishes, pthread_attr_destroy, "FBSD_1.0");
int our_detached(void** wishes, int how) { return *wishes != NULL && how == 1 ? 0 : EINVAL; }
AS(our_detached, pthread_attr_setdetachstate, "FBSD_1.0");
int our_stack(void** wishes, size_t bytes) { return *wishes != NULL && bytes >= 2048 ? 0 : EINVAL; }
AS(our_stack, pthread_attr_setstacksize, "FBSD_1.0");
