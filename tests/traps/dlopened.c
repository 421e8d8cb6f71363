// The library opened at run time beside the program's own malloc, used by its prefixed names only,
// and closed again. TEST_DLOPEN names the library; it is not preloaded.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

struct api {
  void* library;
  void* (*allocate)(size_t);
  void* (*allocate_zeroed)(size_t, size_t);
  void* (*reallocate)(void*, size_t);
  void* (*allocate_aligned)(size_t, size_t);
  void (*release)(void*);
  size_t (*usable_size)(void*);
};

static struct api open_library(void) {
  const char* path = getenv("TEST_DLOPEN");
  CHECK(path != NULL, "TEST_DLOPEN is not set");
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "dlopen: %s", dlerror());
  struct api api = {
      .library = library,
      .allocate = (void* (*)(size_t))dlsym(library, "allod_malloc"),
      .allocate_zeroed = (void* (*)(size_t, size_t))dlsym(library, "allod_calloc"),
      .reallocate = (void* (*)(void*, size_t))dlsym(library, "allod_realloc"),
      .allocate_aligned = (void* (*)(size_t, size_t))dlsym(library, "allod_aligned_alloc"),
      .release = (void (*)(void*))dlsym(library, "allod_free"),
      .usable_size = (size_t (*)(void*))dlsym(library, "allod_malloc_usable_size"),
  };
  CHECK(api.allocate != NULL && api.allocate_zeroed != NULL && api.reallocate != NULL &&
            api.allocate_aligned != NULL && api.release != NULL && api.usable_size != NULL,
        "dlsym: %s", dlerror());
  char provider[4096];
  CHECK(strstr(provider_of(find_function("malloc"), provider), "libc.so") != NULL,
        "malloc is provided by %s", provider);
  return api;
}

enum { kBlocks = 500 };

// Blocks of both heaps, each freed where it came from.
static void use(const struct api* api) {
  void* blocks[2][kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    size_t size = 1 + (i * 7919) % (i % 50 == 0 ? 600000 : 2000);
    blocks[0][i] = obtain(size);
    blocks[1][i] = i % 3 == 0   ? api->allocate(size)
                   : i % 3 == 1 ? api->allocate_zeroed(1, size)
                                : api->allocate_aligned(64, size);
    CHECK(blocks[1][i] != NULL, "a block of %zu bytes", size);
    CHECK(i % 3 != 1 || is_zero(blocks[1][i], size), "allod_calloc is not all zero");
    CHECK(api->usable_size(blocks[1][i]) >= size, "a block of %zu bytes", size);
    fill(blocks[0][i], size, i);
    fill(blocks[1][i], size, i + kBlocks);
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    size_t size = 1 + (i * 7919) % (i % 50 == 0 ? 600000 : 2000);
    blocks[1][i] = api->reallocate(blocks[1][i], size * 2);
    CHECK(blocks[1][i] != NULL, "allod_realloc(p, %zu)", size * 2);
    CHECK(holds(blocks[0][i], size, i), "a block of libc's was overwritten");
    CHECK(holds(blocks[1][i], size, i + kBlocks), "a block of the library's was overwritten");
    free(blocks[0][i]);
    api->release(blocks[1][i]);
  }
  errno = 0;
  CHECK(api->allocate(SIZE_MAX) == NULL && errno == ENOMEM, "allod_malloc(SIZE_MAX)");
}

CASE(lives_beside_another_malloc) {
  struct api api = open_library();
  for (int round = 0; round < 20; ++round) {
    use(&api);
  }
}

CASE(opened_and_closed_50_times) {
  size_t resident = 0;
  for (int round = 0; round < 50; ++round) {
    struct api api = open_library();
    use(&api);
    CHECK(dlclose(api.library) == 0, "dlclose: %s", dlerror());
    exercise((uint64_t)round, 200);
    if (round == 10) {
      resident = resident_bytes();
    }
  }
  CHECK(resident_bytes() < resident + 32 * MIB, "%zu KiB more after 40 rounds",
        (resident_bytes() - resident) / KIB);
}

static pthread_barrier_t barrier;

static void* use_then_outlive(void* argument) {
  use(argument);
  pthread_barrier_wait(&barrier);
  // The library is closed here; what it left in this thread must not be called into.
  pthread_barrier_wait(&barrier);
  return NULL;
}

CASE(threads_that_used_it_end_after_it_is_closed) {
  enum { kThreads = 8 };
  for (int round = 0; round < 10; ++round) {
    struct api api = open_library();
    pthread_t threads[kThreads];
    CHECK(pthread_barrier_init(&barrier, NULL, kThreads + 1) == 0, "pthread_barrier_init");
    for (size_t i = 0; i < kThreads; ++i) threads[i] = start_thread(use_then_outlive, &api);
    pthread_barrier_wait(&barrier);
    CHECK(dlclose(api.library) == 0, "dlclose: %s", dlerror());
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
  }
}

CASE(the_process_forks_after_it_is_closed) {
  struct api api = open_library();
  use(&api);
  CHECK(dlclose(api.library) == 0, "dlclose: %s", dlerror());
  for (int i = 0; i < 20; ++i) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      exercise(1, 500);
      api = open_library();
      use(&api);
      exit(0);
    }
    expect_success(child);
  }
}

static void* open_and_use(void* argument) {
  struct api* api = argument;
  *api = open_library();
  use(api);
  return api->allocate(1000);
}

CASE(opened_in_a_thread_that_ends) {
  struct api api;
  void* block = NULL;
  const pthread_t thread = start_thread(open_and_use, &api);
  pthread_join(thread, &block);
  CHECK(block != NULL, "a block from a thread that ended");
  fill(block, 1000, 1);
  use(&api);
  CHECK(holds(block, 1000, 1), "a block from a thread that ended was overwritten");
  api.release(block);
  CHECK(dlclose(api.library) == 0, "dlclose: %s", dlerror());
}

CASE(forks_while_open) {
  struct api api = open_library();
  void* block = api.allocate(5000);
  CHECK(block != NULL, "a block");
  fill(block, 5000, 1);
  for (int i = 0; i < 50; ++i) {
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      CHECK(holds(block, 5000, 1), "a block of the parent's");
      api.release(block);
      use(&api);
      _exit(0);
    }
    expect_success(child);
  }
  CHECK(holds(block, 5000, 1), "a block of the parent's");
  api.release(block);
}
