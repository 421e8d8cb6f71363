// Allocation around the dynamic loader: before constructors, in the loader's own calls, in
// libraries that come and go.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "plugin.h"
#include "stage.h"

static struct block_set before_constructors;
static struct block_set in_first_constructor;
static struct block_set in_constructor;

static void preinitialise(void) { allocate_set(&before_constructors, 11); }
BEFORE_CONSTRUCTORS(preinitialise);

__attribute__((constructor(101))) static void construct_first(void) {
  allocate_set(&in_first_constructor, 12);
}
__attribute__((constructor)) static void construct(void) { allocate_set(&in_constructor, 13); }

CASE(blocks_from_before_constructors_live_on) {
  free_set(&before_constructors);
  free_set(&in_first_constructor);
  free_set(&in_constructor);
  exercise(1, 20000);
}

static void check_plugin(const char* name, int rounds, int mode) {
  const char* path = beside_program(name);
  size_t resident = 0;
  size_t mapped = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == rounds / 5) {
      // What is free may be resident or not, as time passes.
      malloc_trim(0);
      resident = resident_bytes();
      mapped = mapped_bytes();
    }
    void* library = dlopen(path, RTLD_NOW | mode);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    plugin_allocate_function allocate = (plugin_allocate_function)dlsym(library, "plugin_allocate");
    plugin_free_function release = (plugin_free_function)dlsym(library, "plugin_free");
    plugin_use_storage_function use_storage =
        (plugin_use_storage_function)dlsym(library, "plugin_use_storage");
    CHECK(allocate != NULL && release != NULL && use_storage != NULL, "dlsym: %s", dlerror());
    use_storage((unsigned char)(round | 1));
    size_t largest = round % 20 == 0 ? 3 * MIB : 60 * KIB;
    for (size_t size = 1; size < largest; size = size * 5 + 1) {
      release(allocate(size), size);
      void* ours = obtain(size);
      fill(ours, size, 42);
      release(ours, size);
      void* theirs = allocate(size);
      CHECK(holds(theirs, size, 42), "a block that crossed a library's border");
      free(theirs);
    }
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
  }
  malloc_trim(0);
  CHECK(resident_bytes() < resident + 16 * MIB, "%zu KiB more after %d rounds",
        (resident_bytes() - resident) / KIB, rounds);
  // Addresses are reserved 64 MiB at a time.
  CHECK(mapped_bytes() < mapped + 96 * MIB, "%zu KiB more mapped after %d rounds",
        (mapped_bytes() - mapped) / KIB, rounds);
}

CASE(a_library_comes_and_goes_1000_times) { check_plugin("libplugin.so", 1000, 0); }
CASE(a_cpp_library_comes_and_goes_200_times) { check_plugin("libplugin_cpp.so", 200, 0); }

CASE(a_library_that_looks_in_libc_first_has_the_same_heap) {
#ifdef RTLD_DEEPBIND
  check_plugin("libplugin.so", 20, RTLD_DEEPBIND);
  check_plugin("libplugin_cpp.so", 20, RTLD_DEEPBIND);
#else
  skip_case("the loader knows no such libraries");
#endif
}

CASE(a_library_opens_others_by_its_own_path) {
  void* library = dlopen(beside_program("libcaller.so"), RTLD_NOW);
  CHECK(library != NULL, "dlopen: %s", dlerror());
  void* (*open_by_own_path)(const char*) =
      (void* (*)(const char*))dlsym(library, "open_by_own_path");
  CHECK(dlopen("libplugin.so", RTLD_NOW) == NULL, "the program has that path, too");
  CHECK(open_by_own_path("libplugin.so") != NULL, "dlopen: %s", dlerror());
}

struct storage_job {
  plugin_use_storage_function use_storage;
  unsigned char value;
};

static void* use_storage_in_thread(void* argument) {
  const struct storage_job* job = argument;
  job->use_storage(job->value);
  exercise(job->value, 200);
  job->use_storage(job->value);
  return NULL;
}

static void check_storage(const char* name) {
  const char* path = beside_program(name);
  for (int round = 0; round < 20; ++round) {
    enum { kThreads = 16 };
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    plugin_use_storage_function use_storage =
        (plugin_use_storage_function)dlsym(library, "plugin_use_storage");
    CHECK(use_storage != NULL, "dlsym: %s", dlerror());
    pthread_t threads[kThreads];
    struct storage_job jobs[kThreads];
    for (size_t i = 0; i < kThreads; ++i) {
      jobs[i] = (struct storage_job){use_storage, (unsigned char)(i + 1)};
      threads[i] = start_thread(use_storage_in_thread, &jobs[i]);
    }
    for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
  }
}

CASE(thread_local_storage_of_a_library) { check_storage("libplugin.so"); }
CASE(thread_local_objects_of_a_cpp_library) { check_storage("libplugin_cpp.so"); }

static atomic_bool stop;

static void* allocate_until_stopped(void* argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load(&stop)) {
    exercise(seed++, 500);
  }
  return NULL;
}

CASE(libraries_come_and_go_while_threads_allocate) {
  pthread_t threads[3];
  for (size_t i = 0; i < 3; ++i)
    threads[i] = start_thread(allocate_until_stopped, (void*)(i * 1000));
  for (int round = 0; round < 30; ++round) {
    void* first = dlopen(beside_program("libplugin.so"), RTLD_NOW);
    void* second = dlopen(beside_program("libplugin_cpp.so"), RTLD_NOW);
    CHECK(first != NULL && second != NULL, "dlopen: %s", dlerror());
    dlclose(first);
    dlclose(second);
  }
  atomic_store(&stop, true);
  for (size_t i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
}

// The second namespace has a libc of its own, whose heap must not get in the way of ours.
CASE(a_second_namespace_has_its_own_heap) {
  void* library = dlmopen(LM_ID_NEWLM, beside_program("libplugin.so"), RTLD_NOW);
  if (library == NULL) {
    skip_case("dlmopen: %s", dlerror());
  }
  plugin_allocate_function allocate = (plugin_allocate_function)dlsym(library, "plugin_allocate");
  plugin_free_function release = (plugin_free_function)dlsym(library, "plugin_free");
  CHECK(allocate != NULL && release != NULL, "dlsym: %s", dlerror());
  struct block_set ours;
  allocate_set(&ours, 3);
  for (size_t size = 1; size < 3 * MIB; size = size * 3 + 1) {
    void* theirs = allocate(size);
    verify_set(&ours);
    release(theirs, size);
  }
  free_set(&ours);
  exercise(4, 5000);
  CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
}

// Two libraries in LD_PRELOAD: whichever comes first, one of them is started and ended outside the
// other.
static int early_pipe[2];
static const char* preload_format;

static void preload_early(void) {
  const char* library = getenv("LD_PRELOAD");
  char value[10000];
  snprintf(value, sizeof value, preload_format, library == NULL ? "" : library,
           beside_program("libearly.so"));
  setenv("LD_PRELOAD", value, 1);
  snprintf(value, sizeof value, "%d", early_pipe[1]);
  setenv("TEST_EARLY", value, 1);
}

static void work_beside_early_library(void) {
  const pthread_t thread = start_thread(exercise_thread, NULL);
  exercise(1, 5000);
  pthread_join(thread, NULL);
  pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    exercise(2, 2000);
    _exit(0);
  }
  expect_success(child);
}

static void check_early_library(const char* format) {
  if (is_second_stage()) {
    work_beside_early_library();
    return;
  }
  preload_format = format;
  CHECK(pipe(early_pipe) == 0, "pipe");
  run_second_stage(preload_early);
  close(early_pipe[1]);
  char text[8] = "";
  CHECK(read(early_pipe[0], text, sizeof text - 1) == 2 && strcmp(text, "cd") == 0,
        "the early library wrote '%s', not 'cd'", text);
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"
CASE(a_library_preloaded_after_the_allocator) { check_early_library("%1$s:%2$s"); }
CASE(a_library_preloaded_before_the_allocator) { check_early_library("%2$s:%1$s"); }

static void bind_at_start(void) { setenv("LD_BIND_NOW", "1", 1); }
static void audit_nothing(void) { setenv("LD_DEBUG", "unused", 1); }

CASE(all_names_bound_at_start) {
  if (!is_second_stage()) {
    run_second_stage(bind_at_start);
    return;
  }
  free_set(&before_constructors);
  exercise(1, 5000);
}

// The loader allocates differently while it reports.
CASE(loader_that_reports) {
  if (!is_second_stage()) {
    run_second_stage(audit_nothing);
    return;
  }
  free_set(&before_constructors);
  exercise(1, 5000);
}
