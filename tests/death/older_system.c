// Cases of other programs, as on a system that cannot do all that this one can.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "functions.h"

enum { kGuardInstall = 102, kGuardRemove = 103 };

// A call whose third argument has a value.
static void refuse_call(uint32_t call, uint32_t third, uint32_t error) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  filter_system_calls(instructions, sizeof instructions / sizeof *instructions);
}
static void refuse_advice(uint32_t advice) { refuse_call(SYS_madvise, advice, EINVAL); }

// A program that allows itself fewer system calls from some point on: what is closed then cannot be
// opened, and must not be handed out.
CASE(blocks_that_cannot_be_opened) {
  enum { kBlocks = 40, kBytes = 200000 };
  char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = allocating_function(kBytes);
  for (int i = 0; i < kBlocks; i += 2) freeing_function(blocks[i]);
  // So that they have left the quarantine.
  for (int i = 0; i < 800; ++i) freeing_function(allocating_function(100));
  refuse_advice(kGuardRemove);
  for (int i = 0; i < kBlocks; i += 2) {
    blocks[i] = allocating_function(kBytes);
    CHECK(blocks[i] != NULL, "no block");
    for (int at = 0; at < kBytes; at += 1024) blocks[i][at] = 1;
  }
  for (int i = 0; i < kBlocks; ++i) freeing_function(blocks[i]);
  survive();
}

// The same for blocks in use, of which the pages that were not asked for are closed.
CASE(blocks_in_use_that_cannot_be_opened) {
  enum { kBlocks = 40 };
  const size_t bytes = parameter("TEST_SIZE");
  char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = allocating_function(bytes);
  refuse_advice(kGuardInstall);
  refuse_advice(kGuardRemove);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kBlocks; ++i) freeing_function(blocks[i]);
    for (int i = 0; i < 800; ++i) freeing_function(allocating_function(100));
    for (int i = 0; i < kBlocks; ++i) {
      const size_t more = bytes + bytes / 12;
      blocks[i] = allocating_function(more);
      CHECK(blocks[i] != NULL, "no block");
      for (size_t at = 0; at < more; at += 1024) blocks[i][at] = 1;
    }
  }
  for (int i = 0; i < kBlocks; ++i) freeing_function(blocks[i]);
  survive();
}

// A block that is resized before the same guard needs nothing of the system.
CASE(a_large_block_that_grows_a_little) {
  const size_t bytes = parameter("TEST_SIZE");
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* const block = allocating_function(bytes);
  const size_t end = ((uintptr_t)block + bytes + 8 + page - 1) / page * page - (uintptr_t)block;
  refuse_advice(kGuardInstall);
  refuse_advice(kGuardRemove);
  for (size_t more = bytes; more + 8 <= end; more += 8) {
    CHECK(reallocating_function(block, more) == block, "%zu bytes moved", more);
    memset(block, 1, more);
  }
  freeing_function(block);
  survive();
}

// Large blocks that are in memory are shut when they are free, if the process may have so many
// mappings. The last of those that are freed here still wait, or are kept, when it turns out that
// they cannot be opened. Of huge ones there are no others then.
CASE(blocks_that_cannot_be_shut_or_reopened) {
  enum { kMostBlocks = 40 };
  const size_t bytes = parameter("TEST_SIZE");
  const int count = bytes < 1 << 22 ? kMostBlocks : 6;
  const int protection = (int)parameter("TEST_PROTECTION");
  char* blocks[kMostBlocks];
  for (int round = 0; round < 3; ++round) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      blocks[i] = malloc(bytes);
      if (blocks[i] == NULL) continue;
      for (size_t at = 0; at < bytes; ++at) {
        CHECK(blocks[i][at] == 0 || round == 0, "byte %zu", at);
      }
      memset(blocks[i], 1, bytes);
      ++found;
    }
    CHECK(found >= count / 2 || bytes >= 1 << 22, "%d blocks", found);
    for (int i = 0; i < count; ++i) free(blocks[i]);
    if (round == 0) refuse_call(SYS_mprotect, (uint32_t)protection, ENOMEM);
    for (int i = 0; i < 800; ++i) freeing_function(allocating_function(100));
  }
  // There may be no more memory.
  tell("survived", 1);
}

// Linux before 6.13 knows no guards without a mapping for each (MADV_GUARD_INSTALL).
CASE(without_light_guards) {
  refuse_advice(kGuardInstall);
  execl(getenv("TEST_PROGRAM"), "overruns", getenv("TEST_CASE"), (char*)NULL);
  CHECK(0, "exec");
}
