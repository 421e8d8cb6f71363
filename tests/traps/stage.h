// What the traps share: processes of their own, the helper libraries, and work for the allocator.
#ifndef ALLOD_TESTS_STAGE_H
#define ALLOD_TESTS_STAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "cases.h"

#ifdef __cplusplus
extern "C" {
#endif

// A function that runs before all constructors, those of preloaded libraries too; with a libc that
// has no such functions, before the program's.
#ifdef __GLIBC__
#define BEFORE_CONSTRUCTORS(function)                                                            \
  __attribute__((section(".preinit_array"), used)) static void (*const function##_entry)(void) = \
      function
#else
#define BEFORE_CONSTRUCTORS(function)                                                  \
  __attribute__((constructor(101))) static void function##_early(void) { function(); } \
  _Static_assert(1, "a semicolon follows")
#endif

// Runs the running case again in a fresh process image, after `prepare` in the new process has
// changed what the image starts with. Returns when that run holds; otherwise ends this process as
// that one ended. In the fresh image `is_second_stage` is true.
void run_second_stage(void (*prepare)(void));
bool is_second_stage(void);

// Waits for a child and passes its failure, or its skipping, on.
void expect_success(pid_t child);

// Forks a child that runs `body` with a descriptor to write to and then ends as `body` says or by
// exit(0). The child has to end with this wait status, having written exactly this text.
void expect_child(void (*body)(int descriptor), int wait_status, const char* text);

// One character to the descriptor, without allocating.
void put(int descriptor, char character);

// The path of a file beside this program, in a static buffer.
const char* beside_program(const char* name);

// A set of blocks of all kinds of sizes, from a byte to half a MiB, each with a pattern.
enum { BLOCKS_IN_SET = 64 };
struct block_set {
  void* blocks[BLOCKS_IN_SET];
  uint64_t seed;
};
void allocate_set(struct block_set* set, uint64_t seed);
// Fails when a block does not hold its pattern; blocks may have been freed and set to NULL.
void verify_set(const struct block_set* set);
void free_set(struct block_set* set);

// Allocates, resizes, verifies and frees blocks of all kinds of sizes, in an order of the seed's.
void exercise(uint64_t seed, int steps);
// The same with this seed, beside a set, as the body of a thread.
void* exercise_thread(void* seed);

#ifdef __cplusplus
}
#endif
#endif
