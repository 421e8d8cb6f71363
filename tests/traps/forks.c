// fork and its relatives, while other threads are anywhere inside the allocator.
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

extern char** environ;

enum { kWorkers = 4 };

// Workers that first leave a set of blocks to be found by children, then allocate and free blocks,
// their own and each other's, until told to stop.
static struct {
  pthread_t threads[kWorkers];
  struct block_set left[kWorkers];
  _Atomic(void*) exchange[64];
  pthread_barrier_t ready;
  atomic_bool stop;
} workers;

// They give way: whoever waits for a child, waits for little but the child.
static void* work(void* argument) {
  size_t index = (uintptr_t)argument;
  CHECK(setpriority(PRIO_PROCESS, (id_t)gettid(), 10) == 0, "setpriority");
  allocate_set(&workers.left[index], 100 + index);
  pthread_barrier_wait(&workers.ready);
  uint64_t random = index + 1;
  while (!atomic_load_explicit(&workers.stop, memory_order_relaxed)) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    // Large ones often: what forks could break is what threads do where calls are slow.
    size_t scale = (random >> 20) % 8 == 0 ? 300000 : 900;
    void* block = obtain(1 + (size_t)(random >> 40) % scale);
    *(unsigned char*)block = 1;
    free(atomic_exchange(&workers.exchange[(random >> 33) % 64], block));
  }
  return NULL;
}

static void start_workers(void) {
  atomic_store(&workers.stop, false);
  CHECK(pthread_barrier_init(&workers.ready, NULL, kWorkers + 1) == 0, "pthread_barrier_init");
  for (size_t i = 0; i < kWorkers; ++i) workers.threads[i] = start_thread(work, (void*)i);
  pthread_barrier_wait(&workers.ready);
}

static void stop_workers(void) {
  atomic_store(&workers.stop, true);
  for (size_t i = 0; i < kWorkers; ++i) {
    pthread_join(workers.threads[i], NULL);
    free_set(&workers.left[i]);
  }
  for (size_t i = 0; i < 64; ++i) {
    free(atomic_exchange(&workers.exchange[i], NULL));
  }
}

static pid_t checked_fork(void) {
  pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  return child;
}

CASE(child_frees_blocks_of_every_thread) {
  start_workers();
  struct block_set mine;
  allocate_set(&mine, 7);
  for (int round = 0; round < 100; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      free_set(&mine);
      for (size_t i = 0; i < kWorkers; ++i) {
        free_set(&workers.left[i]);
      }
      // Not what the workers are exchanging: the pages of the child are not all of one instant.
      exercise((uint64_t)round, 500);
      _exit(0);
    }
    expect_success(child);
  }
  free_set(&mine);
  stop_workers();
}

CASE(fork_300_times_while_threads_allocate) {
  start_workers();
  for (int round = 0; round < 300; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      exercise((uint64_t)round, 100);
      _exit(0);
    }
    exercise((uint64_t)round, 20);
    expect_success(child);
  }
  stop_workers();
}

static void* fork_often(void* argument) {
  uint64_t seed = (uintptr_t)argument;
  struct block_set mine;
  allocate_set(&mine, seed);
  for (int round = 0; round < 60; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      free_set(&mine);
      exercise(seed, 300);
      _exit(0);
    }
    exercise(seed, 100);
    expect_success(child);
  }
  free_set(&mine);
  return NULL;
}

CASE(several_threads_fork_at_once) {
  start_workers();
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) threads[i] = start_thread(fork_often, (void*)(i + 1));
  for (size_t i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  stop_workers();
}

static void exercise_in_threads(void) {
  pthread_t threads[3];
  for (size_t i = 0; i < 3; ++i) threads[i] = start_thread(exercise_thread, (void*)i);
  for (size_t i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
}

CASE(child_starts_threads) {
  start_workers();
  for (int round = 0; round < 50; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      exercise_in_threads();
      free_set(&workers.left[round % kWorkers]);
      exit(0);
    }
    expect_success(child);
  }
  stop_workers();
}

// Each generation frees what the one before allocated, leaves a thread behind, and forks again.
CASE(chain_of_50_generations) {
  struct block_set inherited;
  allocate_set(&inherited, 0);
  for (uint64_t generation = 1; generation <= 50; ++generation) {
    pid_t child = checked_fork();
    if (child != 0) {
      expect_success(child);
      verify_set(&inherited);
      exit(0);
    }
    free_set(&inherited);
    exercise_in_threads();
    allocate_set(&inherited, generation);
  }
  free_set(&inherited);
}

struct forker {
  struct block_set of_main;
  pid_t child;
};

static void* fork_in_thread(void* argument) {
  struct forker* forker = argument;
  struct block_set mine;
  allocate_set(&mine, 3);
  forker->child = checked_fork();
  if (forker->child == 0) {
    // The one thread of the child is not the parent's main thread.
    free_set(&forker->of_main);
    exercise_in_threads();
  }
  free_set(&mine);
  if (forker->child == 0) {
    pthread_exit(NULL);
  }
  return NULL;
}

CASE(fork_in_a_thread_that_then_ends) {
  for (int round = 0; round < 30; ++round) {
    struct forker forker;
    allocate_set(&forker.of_main, (uint64_t)round);
    run_thread(fork_in_thread, &forker);
    expect_success(forker.child);
    free_set(&forker.of_main);
  }
}

CASE(parent_and_child_do_not_share_blocks) {
  struct block_set set;
  allocate_set(&set, 1);
  for (int round = 0; round < 20; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      for (size_t i = 0; i < BLOCKS_IN_SET; ++i) {
        *(unsigned char*)set.blocks[i] ^= 0xff;
        free(set.blocks[i]);
      }
      exercise(1, 3000);
      _exit(0);
    }
    expect_success(child);
    verify_set(&set);
  }
  free_set(&set);
}

CASE(memory_of_ended_children_threads_is_used_again) {
  // In the child, what the parent's other threads held has no owner, and must not be lost each
  // time: a chain of servers that fork would grow with every generation.
  start_workers();
  pid_t child = checked_fork();
  if (child == 0) {
    for (size_t i = 0; i < kWorkers; ++i) {
      free_set(&workers.left[i]);
    }
    size_t before = 0;
    for (uint64_t generation = 0; generation < 60; ++generation) {
      exercise_in_threads();
      pid_t next = checked_fork();
      if (next != 0) {
        expect_success(next);
        _exit(0);
      }
      exercise(generation, 500);
      if (generation == 20) {
        before = resident_bytes();
      }
    }
    CHECK(resident_bytes() < before + 16 * MIB, "40 generations take %zu KiB more",
          (resident_bytes() - before) / KIB);
    _exit(0);
  }
  expect_success(child);
  stop_workers();
}

CASE(vfork_and_exec_while_threads_allocate) {
  start_workers();
  for (int round = 0; round < 200; ++round) {
    pid_t child = vfork();
    CHECK(child >= 0, "vfork");
    if (child == 0) {
      execl("/bin/true", "true", (char*)NULL);
      _exit(1);
    }
    exercise((uint64_t)round, 50);
    expect_success(child);
  }
  stop_workers();
}

CASE(spawn_while_threads_allocate) {
  start_workers();
  for (int round = 0; round < 200; ++round) {
    char name[] = "true";
    char* arguments[] = {name, NULL};
    pid_t child = -1;
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0, "posix_spawn");
    exercise((uint64_t)round, 50);
    expect_success(child);
  }
  stop_workers();
}

CASE(pipes_to_shells_while_threads_allocate) {
  start_workers();
  for (int round = 0; round < 50; ++round) {
    FILE* pipe = popen("echo text", "r");
    CHECK(pipe != NULL, "popen");
    char line[16];
    CHECK(fgets(line, sizeof line, pipe) != NULL && strcmp(line, "text\n") == 0, "popen");
    CHECK(pclose(pipe) == 0, "pclose");
  }
  stop_workers();
}

CASE(exec_while_threads_allocate) {
  for (int round = 0; round < 20; ++round) {
    pid_t child = checked_fork();
    if (child == 0) {
      start_workers();
      execl("/bin/true", "true", (char*)NULL);
      _exit(1);
    }
    expect_success(child);
  }
}

static void become_daemon(int descriptor) {
  start_workers();
  CHECK(daemon(1, 1) == 0, "daemon");
  free_set(&workers.left[0]);
  exercise_in_threads();
  exercise(1, 5000);
  put(descriptor, 'd');
  _exit(0);
}

CASE(daemons) { expect_child(become_daemon, 0, "d"); }

// Handlers of the program's that allocate. Those registered before the allocator's own run inside
// them: the last in prepare, the first afterwards.
static struct block_set handed_on;
static atomic_int handler_calls;

static void prepare_handler(void) {
  allocate_set(&handed_on, 9);
  exercise(1, 300);
  atomic_fetch_add(&handler_calls, 1);
}
static void parent_handler(void) {
  free_set(&handed_on);
  exercise(2, 300);
  atomic_fetch_add(&handler_calls, 1);
}
static void child_handler(void) {
  free_set(&handed_on);
  exercise(3, 300);
  atomic_fetch_add(&handler_calls, 1);
}

static void fork_with_handlers(void) {
  start_workers();
  for (int round = 0; round < 100; ++round) {
    atomic_store(&handler_calls, 0);
    pid_t child = checked_fork();
    CHECK(atomic_load(&handler_calls) == 2, "%d handlers ran", atomic_load(&handler_calls));
    if (child == 0) {
      exercise(4, 100);
      _exit(0);
    }
    expect_success(child);
  }
  stop_workers();
}

CASE(handlers_that_allocate) {
  CHECK(pthread_atfork(prepare_handler, parent_handler, child_handler) == 0, "pthread_atfork");
  fork_with_handlers();
}

// Handlers that wait for threads that allocate: for one that has a lock meanwhile, and for the end
// of another, which had memory of its own.
static struct {
  pthread_mutex_t lock;
  pthread_t holder;
  pthread_t ending;
  atomic_bool stop;
} waited_for = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void* allocate_with_lock(void* unused) {
  while (!atomic_load(&waited_for.stop)) {
    CHECK(pthread_mutex_lock(&waited_for.lock) == 0, "pthread_mutex_lock");
    exercise(1, 300);
    CHECK(pthread_mutex_unlock(&waited_for.lock) == 0, "pthread_mutex_unlock");
    CHECK(usleep(100) == 0, "usleep");
  }
  return unused;
}
static void* allocate_once(void* unused) {
  exercise(2, 300);
  return unused;
}
static void start_ending_thread(void) { waited_for.ending = start_thread(allocate_once, NULL); }
static void waiting_prepare_handler(void) {
  CHECK(pthread_mutex_lock(&waited_for.lock) == 0, "pthread_mutex_lock");
  CHECK(pthread_join(waited_for.ending, NULL) == 0, "pthread_join");
}
static void waiting_handler(void) {
  CHECK(pthread_mutex_unlock(&waited_for.lock) == 0, "pthread_mutex_unlock");
}

static void register_early(int count, char** arguments, char** environment) {
  (void)environment;
  const char* name = count > 1 ? arguments[1] : "";
  if (strcmp(name, "handlers_from_before_constructors_that_allocate") == 0) {
    CHECK(pthread_atfork(prepare_handler, parent_handler, child_handler) == 0, "pthread_atfork");
  }
  if (strcmp(name, "handlers_from_before_constructors_that_wait") == 0) {
    CHECK(pthread_atfork(waiting_prepare_handler, waiting_handler, waiting_handler) == 0,
          "pthread_atfork");
  }
}
__attribute__((section(".preinit_array"),
               used)) static void (*const registrar)(int, char**, char**) = register_early;

CASE(handlers_from_before_constructors_that_allocate) { fork_with_handlers(); }

CASE(handlers_from_before_constructors_that_wait) {
  waited_for.holder = start_thread(allocate_with_lock, NULL);
  for (int round = 0; round < 100; ++round) {
    start_ending_thread();
    pid_t child = checked_fork();
    if (child == 0) {
      exercise(4, 100);
      _exit(0);
    }
    expect_success(child);
  }
  atomic_store(&waited_for.stop, true);
  CHECK(pthread_join(waited_for.holder, NULL) == 0, "pthread_join");
}

// A fork that fails takes back in the parent what prepare did.
CASE(fork_that_fails) {
  if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
    skip_case("cannot give up root's right to any number of processes");
  }
  const struct rlimit none = {0, 0};
  struct block_set set;
  allocate_set(&set, 1);
  start_workers();
  CHECK(setrlimit(RLIMIT_NPROC, &none) == 0, "setrlimit");
  for (int round = 0; round < 200; ++round) {
    pid_t child = fork();
    if (child == 0) {
      _exit(0);
    }
    if (child > 0) {
      skip_case("the limit on processes has no effect");
    }
    CHECK(errno == EAGAIN, "fork: %s", strerrorname_np(errno));
    exercise((uint64_t)round, 200);
  }
  stop_workers();
  free_set(&set);
}
