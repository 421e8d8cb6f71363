#include "functions.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

OWN_FRAME void* allocating_function(size_t size) {
  void* block = hidden(malloc(size));
  CHECK(block != NULL, "malloc(%zu)", size);
  return block;
}

OWN_FRAME void freeing_function(void* block) {
  free(block);
  KEEP_FRAME();
}

OWN_FRAME void* reallocating_function(void* block, size_t size) {
  void* moved = hidden(realloc(block, size));
  CHECK(moved != NULL, "realloc to %zu", size);
  return moved;
}

OWN_FRAME void misusing_function(void* address) {
  free(hidden(address));
  KEEP_FRAME();
}

OWN_FRAME void* misusing_realloc(void* address, size_t size) {
  return hidden(realloc(hidden(address), size));
}

OWN_FRAME void misusing_free_sized(void* block, size_t size) {
  void (*free_sized)(void*, size_t) = (void (*)(void*, size_t))find_function("free_sized");
  free_sized(block, size);
  KEEP_FRAME();
}

OWN_FRAME void misusing_free_aligned_sized(void* block, size_t alignment, size_t size) {
  void (*free_aligned_sized)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))find_function("free_aligned_sized");
  free_aligned_sized(block, alignment, size);
  KEEP_FRAME();
}

static void write_out(const char* line, int length) {
  CHECK(write(STDOUT_FILENO, line, (size_t)length) == length, "write");
}

void tell(const char* name, uintptr_t value) {
  char line[128];
  write_out(line, snprintf(line, sizeof line, "%s %#zx\n", name, (size_t)value));
}

static void* tell_address_as(const char* name, void* address) {
  tell("main_thread", (uintptr_t)getpid());
  tell(name, (uintptr_t)address);
  return address;
}

void* tell_block(void* block) { return tell_address_as("block", block); }
void* tell_address(void* address) { return tell_address_as("address", address); }

void tell_thread(const char* name) { tell(name, (uintptr_t)syscall(SYS_gettid)); }

size_t parameter(const char* name) {
  const char* text = getenv(name);
  CHECK(text != NULL, "%s is not set", name);
  return (size_t)strtoull(text, NULL, 0);
}

struct job {
  void (*function)(void*);
  void* argument;
  sem_t may_start;
};

static void* run_job(void* argument) {
  struct job* job = argument;
  while (sem_wait(&job->may_start) != 0) {
  }
  tell_thread("thread");
  job->function(job->argument);
  return NULL;
}

static void nothing(void* unused) { (void)unused; }

void on_another_thread(void (*function)(void*), void* argument) {
  here_then_there(nothing, function, argument);
}

void here_then_there(void (*here)(void*), void (*there)(void*), void* argument) {
  struct job job = {.function = there, .argument = argument};
  CHECK(sem_init(&job.may_start, 0, 0) == 0, "sem_init");
  const pthread_t thread = start_thread(run_job, &job);
  here(argument);
  CHECK(sem_post(&job.may_start) == 0, "sem_post");
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

void survive(void) {
  enum { kRounds = 2, kBlocks = 400 };
  static unsigned char* blocks[kBlocks];
  static size_t sizes[kBlocks];
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      sizes[i] = i % 77 == 0 ? (i + 1) * 14 * KIB : (i * i * 7) % 3000;
      blocks[i] = obtain(sizes[i]);
      fill(blocks[i], sizes[i], i);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      CHECK(holds(blocks[i], sizes[i], i), "two blocks overlap after a misuse");
      free(blocks[i]);
    }
  }
  ((void (*)(void))find_function("allod_check"))();
  static const char text[] = "survived 0x1\n";
  write_out(text, sizeof text - 1);
}

// A process that dies as it should leaves nothing behind.
__attribute__((constructor)) static void keep_no_core(void) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}
