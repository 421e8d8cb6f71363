#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

allod_stats_t stats(void) {
  int (*get)(allod_stats_t*, size_t) =
      (int (*)(allod_stats_t*, size_t))find_function("allod_stats_get");
  allod_stats_t result;
  CHECK(get(&result, sizeof result) == 0, "allod_stats_get");
  return result;
}

static void write_to_stdout(const char* text, size_t length, void* context) {
  (void)context;
  CHECK(write(STDOUT_FILENO, text, length) == (ssize_t)length, "write");
}

void write_stats(void) {
  void (*json)(allod_write_t, void*) =
      (void (*)(allod_write_t, void*))find_function("allod_stats_json");
  json(write_to_stdout, NULL);
}

int set_option(const char* name, const char* value) {
  int (*set)(const char*, const char*) =
      (int (*)(const char*, const char*))find_function("allod_option_set");
  return set(name, value);
}

void allocate_touched(unsigned char** blocks, size_t count, size_t size) {
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = obtain(size);
    memset(blocks[i], (int)(i % 251) + 1, size);
  }
}

void free_touched(unsigned char** blocks, size_t count, size_t size) {
  for (size_t i = 0; i < count; ++i) {
    if (blocks[i] == NULL) {
      continue;
    }
    const unsigned char expected = (unsigned char)(i % 251 + 1);
    CHECK(size == 0 || (blocks[i][0] == expected && blocks[i][size - 1] == expected),
          "block %zu of %zu bytes has changed", i, size);
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void pass_a_millisecond(void) {
  const struct timespec moment = {0, 1000000};
  nanosleep(&moment, NULL);
}
