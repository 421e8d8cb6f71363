#include "stage.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char kStageVariable[] = "TEST_STAGE";

bool is_second_stage(void) { return getenv(kStageVariable) != NULL; }

static const char* program_path(void) {
  static char path[PATH_MAX];
  if (path[0] == '\0') {
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0, "cannot read /proc/self/exe");
    path[length] = '\0';
  }
  return path;
}

const char* beside_program(const char* name) {
  static char path[PATH_MAX];
  const char* program = program_path();
  int folder = (int)(strrchr(program, '/') - program);
  CHECK(snprintf(path, sizeof path, "%.*s/%s", folder, program, name) < (int)sizeof path,
        "the path of %s is too long", name);
  return path;
}

void expect_success(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid: %s", strerrorname_np(errno));
  CHECK(!WIFSIGNALED(status), "a child was killed by signal %d", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) {
    _exit(WEXITSTATUS(status));
  }
}

void run_second_stage(void (*prepare)(void)) {
  CHECK(!is_second_stage(), "a third stage");
  const char* program = program_path();
  pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    setenv(kStageVariable, "2", 1);
    if (prepare != NULL) {
      prepare();
    }
    execl(program, program, case_name, (char*)NULL);
    check_failed(__FILE__, __LINE__, "execl", "%s cannot be executed: %s", program,
                 strerrorname_np(errno));
  }
  expect_success(child);
}

void put(int descriptor, char character) { CHECK(write(descriptor, &character, 1) == 1, "write"); }

void expect_child(void (*body)(int descriptor), int wait_status, const char* text) {
  int ends[2];
  CHECK(pipe(ends) == 0, "pipe");
  pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    close(ends[0]);
    body(ends[1]);
    exit(0);
  }
  close(ends[1]);
  char received[256];
  size_t length = 0;
  ssize_t count = 0;
  while ((count = read(ends[0], received + length, sizeof received - 1 - length)) > 0) {
    length += (size_t)count;
  }
  received[length] = '\0';
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  CHECK(status == wait_status, "the child ended with wait status %#x, not %#x, and wrote '%s'",
        status, wait_status, received);
  CHECK(strcmp(received, text) == 0, "the child wrote '%s', not '%s'", received, text);
}

static size_t size_in_set(uint64_t seed, size_t index) {
  static const size_t scales[] = {8, 64, 200, 1000, 4000, 12000, 30000, 60000};
  uint64_t random = (seed * BLOCKS_IN_SET + index + 1) * 0x9e3779b97f4a7c15u;
  if (index == 0) {
    return 200 * KIB + (size_t)(random >> 46);
  }
  return 1 + (size_t)(random >> 32) % scales[index % 8];
}

void allocate_set(struct block_set* set, uint64_t seed) {
  set->seed = seed;
  for (size_t i = 0; i < BLOCKS_IN_SET; ++i) {
    size_t size = size_in_set(seed, i);
    void* block = i % 5 == 0   ? hidden(calloc(1, size))
                  : i % 5 == 1 ? hidden(memalign(64, size))
                  : i % 5 == 2 ? hidden(realloc(hidden(malloc(size / 2 + 1)), size))
                               : hidden(malloc(size));
    CHECK(block != NULL, "block %zu of %zu bytes: %s", i, size, strerrorname_np(errno));
    CHECK(i % 5 != 0 || is_zero(block, size), "calloc of %zu bytes is not all zero", size);
    fill(block, size, seed + i);
    set->blocks[i] = block;
  }
}

void verify_set(const struct block_set* set) {
  for (size_t i = 0; i < BLOCKS_IN_SET; ++i) {
    if (set->blocks[i] != NULL) {
      CHECK(holds(set->blocks[i], size_in_set(set->seed, i), set->seed + i),
            "block %zu of %zu bytes was overwritten", i, size_in_set(set->seed, i));
    }
  }
}

void free_set(struct block_set* set) {
  verify_set(set);
  for (size_t i = 0; i < BLOCKS_IN_SET; ++i) {
    free(set->blocks[i]);
    set->blocks[i] = NULL;
  }
}

void exercise(uint64_t seed, int steps) {
  enum { kSlots = 64 };
  void* blocks[kSlots] = {NULL};
  size_t sizes[kSlots] = {0};
  uint64_t random = seed * 2 + 1;
  for (int step = 0; step < steps; ++step) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    size_t slot = (size_t)(random >> 33) % kSlots;
    size_t scale = (random >> 20) % 128 == 0 ? 500000 : (random >> 20) % 8 == 0 ? 20000 : 600;
    size_t size = 1 + (size_t)(random >> 40) % scale;
    if (blocks[slot] == NULL) {
      blocks[slot] = obtain(size);
    } else {
      CHECK(holds(blocks[slot], sizes[slot], slot), "a block of %zu bytes was overwritten",
            sizes[slot]);
      if ((random >> 50) % 4 == 0) {
        size_t kept = size < sizes[slot] ? size : sizes[slot];
        blocks[slot] = hidden(realloc(blocks[slot], size));
        CHECK(blocks[slot] != NULL, "realloc(p, %zu)", size);
        CHECK(kept < 8 || holds(blocks[slot], kept / 8 * 8, slot),
              "realloc to %zu bytes lost content", size);
      } else {
        free(blocks[slot]);
        blocks[slot] = NULL;
        continue;
      }
    }
    sizes[slot] = size;
    fill(blocks[slot], size, slot);
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    CHECK(blocks[slot] == NULL || holds(blocks[slot], sizes[slot], slot),
          "a block of %zu bytes was overwritten", sizes[slot]);
    free(blocks[slot]);
  }
}

void* exercise_thread(void* seed) {
  struct block_set set;
  allocate_set(&set, (uintptr_t)seed);
  exercise((uintptr_t)seed, 2000);
  free_set(&set);
  return NULL;
}
