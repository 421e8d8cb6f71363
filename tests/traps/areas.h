// Areas for restartable sequences, of which a thread has one at most, and processes that need them.
#ifndef ALLOD_TESTS_AREAS_H
#define ALLOD_TESTS_AREAS_H

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

// From <linux/rseq.h>, which older headers lack.
struct area {
  uint32_t processor_at_start;
  int32_t processor;
  uint64_t sequence;
  uint32_t unused[4];
} __attribute__((aligned(32)));

#if defined(__x86_64__)
enum { kSignature = 0x53053053 };
#else
enum { kSignature = (int)0xd428bc00 };
#endif

static inline int register_area(struct area* area) {
  return (int)syscall(SYS_rseq, area, sizeof *area, 0, kSignature);
}
static inline int unregister_area(struct area* area) {
  return (int)syscall(SYS_rseq, area, sizeof *area, 1, kSignature);
}

// Blocks at hand are those of processors, for all threads.
static inline void prefer_processors(void) { setenv("ALLOD_CACHES", "processor", 1); }
// And the C library registers no thread.
static inline void leave_areas_free(void) {
  prefer_processors();
  setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
}
// Whether this process has been prepared; see run_second_stage. Skips the case where the system has
// no sequences.
static inline bool is_prepared(void (*prepare)(void)) {
  const int result = (int)syscall(SYS_rseq, NULL, 0, 0, 0);
  if (result != -1 || errno != EINVAL) skip_case("the system has no restartable sequences");
  if (is_second_stage()) return true;
  run_second_stage(prepare);
  return false;
}

#endif
