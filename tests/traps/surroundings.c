// What a process finds around itself at its start, and what the allocator must not disturb.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

// All that may make an allocator open a file, start a thread or write a message.
static void live(void) {
  struct block_set set;
  allocate_set(&set, 1);
  exercise(1, 5000);
  run_thread(exercise_thread, NULL);
  for (int round = 0; round < 3; ++round) {
    void* lumps[100];
    for (size_t i = 0; i < 100; ++i) {
      lumps[i] = obtain(MIB);
      memset(lumps[i], 1, MIB);
    }
    for (size_t i = 0; i < 100; ++i) {
      free(lumps[i]);
    }
  }
  CHECK(hidden(malloc(hidden_size(SIZE_MAX))) == NULL, "malloc(SIZE_MAX)");
  malloc_trim(0);
  free_set(&set);
}

static void close_standard_streams(void) {
  close(0);
  close(1);
  close(2);
}

// The program's own files take the numbers 0, 1 and 2; nothing but what it writes may arrive there.
CASE(standard_streams_closed) {
  if (!is_second_stage()) {
    run_second_stage(close_standard_streams);
    return;
  }
  char path[] = "standard-streams-XXXXXX";
  for (int i = 0; i < 3; ++i) {
    int descriptor = i == 0 ? mkstemp(path) : dup(0);
    CHECK(descriptor == i, "descriptor %d is taken", i);
  }
  live();
  struct stat status;
  CHECK(fstat(0, &status) == 0 && status.st_size == 0,
        "%lld bytes were written to the program's file", (long long)status.st_size);
  unlink(path);
}

static void close_other_descriptors(void) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    close(descriptor);
  }
}

static int open_descriptors(void) {
  int count = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    count += fcntl(descriptor, F_GETFD) != -1;
  }
  return count;
}

CASE(no_descriptor_is_left_open) {
  if (!is_second_stage()) {
    run_second_stage(close_other_descriptors);
    return;
  }
  CHECK(open_descriptors() == 3, "%d descriptors are open at the start", open_descriptors());
  live();
  CHECK(open_descriptors() == 3, "%d descriptors are open at the end", open_descriptors());
}

// Daemons close whatever they may have inherited.
CASE(all_descriptors_closed_by_the_program) {
  live();
  close_other_descriptors();
  live();
}

static void allow_no_files(void) {
  const struct rlimit limit = {4, 4};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

CASE(few_descriptors) {
  if (!is_second_stage()) {
    run_second_stage(allow_no_files);
    return;
  }
  CHECK(open("/dev/null", O_RDONLY) == 3, "descriptor 3 is taken");
  CHECK(open("/dev/null", O_RDONLY) == -1, "the limit on descriptors has no effect");
  live();
}

static void hide_proc_and_sys(void) {
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
    skip_case("unshare: %s", strerrorname_np(errno));
  }
  static const char* const hidden_folders[] = {"/sys", "/proc"};
  for (size_t i = 0; i < 2; ++i) {
    if (mount("none", hidden_folders[i], "tmpfs", 0, NULL) != 0) {
      skip_case("mount: %s", strerrorname_np(errno));
    }
  }
}

CASE(neither_proc_nor_sys) {
  if (!is_second_stage()) {
    run_second_stage(hide_proc_and_sys);
    return;
  }
  CHECK(access("/proc/self", F_OK) != 0 && access("/sys/fs", F_OK) != 0, "/proc is there");
  live();
}

// The process starts with a file system around it, and then has none.
CASE(empty_root) {
  exercise(1, 100);
  if (mkdir("root", 0700) != 0 || chroot("root") != 0 || chdir("/") != 0) {
    skip_case("chroot: %s", strerrorname_np(errno));
  }
  live();
}

enum { kNobody = 65534 };

// How many threads a process has that belong to nobody.
static size_t nobodys_threads(pid_t process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", process);
  DIR* folder = opendir(path);
  CHECK(folder != NULL, "%s", path);
  size_t count = 0;
  for (const struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    char line[300];
    snprintf(line, sizeof line, "%s/%s/status", path, entry->d_name);
    FILE* status = fopen(line, "r");
    if (status == NULL) continue;  // it has ended meanwhile
    unsigned owner = kNobody;
    while (fgets(line, sizeof line, status) != NULL && sscanf(line, "Uid:\t%u", &owner) != 1) {
    }
    fclose(status);
    CHECK(owner == kNobody, "a thread belongs to user %u", owner);
    ++count;
  }
  closedir(folder);
  return count;
}

// There is always something for the helper to give back.
static void keep_helper_for(int milliseconds) {
  for (int i = 0; i < milliseconds; i += 20) {
    void* blocks[8];
    for (size_t k = 0; k < 8; ++k) {
      blocks[k] = obtain(MIB);
      fill(blocks[k], MIB, k);
    }
    for (size_t k = 0; k < 8; ++k) free(blocks[k]);
    usleep(20000);
  }
}

static void become_nobody(bool changes_root, int ready) {
  keep_helper_for(300);
  if (changes_root) CHECK(mkdir("root", 0755) == 0 && chroot("root") == 0, "chroot");
  CHECK(setgid(kNobody) == 0 && setuid(kNobody) == 0, "setuid: %s", strerrorname_np(errno));
  CHECK(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
  keep_helper_for(1500);
  CHECK(prctl(PR_GET_DUMPABLE) == 1, "it was decided anew who may look at the process");
  CHECK(write(ready, "", 1) == 1, "write");
  keep_helper_for(60000);
}

// A daemon allocates, and then becomes somebody else. So must the thread that purges.
CASE(no_thread_keeps_rights_that_the_program_gives_up) {
  if (geteuid() != 0) skip_case("only root can become somebody else");
  for (int changes_root = 0; changes_root < 2; ++changes_root) {
    int ready[2];
    CHECK(pipe(ready) == 0, "pipe");
    const pid_t daemon = fork();
    CHECK(daemon >= 0, "fork");
    if (daemon == 0) become_nobody(changes_root != 0, ready[1]);
    close(ready[1]);
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1, "the daemon has ended");
    close(ready[0]);
    CHECK(nobodys_threads(daemon) == 2, "there is no helper");
    kill(daemon, SIGKILL);
    CHECK(waitpid(daemon, NULL, 0) == daemon, "waitpid");
  }
}

static void clear_environment(void) {
  const char* library = getenv("LD_PRELOAD");
  char kept[PATH_MAX] = "";
  if (library != NULL) {
    snprintf(kept, sizeof kept, "%s", library);
  }
  clearenv();
  setenv("TEST_STAGE", "2", 1);
  if (kept[0] != '\0') {
    setenv("LD_PRELOAD", kept, 1);
  }
}

CASE(empty_environment) {
  if (!is_second_stage()) {
    run_second_stage(clear_environment);
    return;
  }
  live();
}

static void fill_environment(void) {
  static char value[100000];
  memset(value, 'v', sizeof value - 1);
  for (int i = 0; i < 10; ++i) {
    char name[32];
    snprintf(name, sizeof name, "LONG_%d", i);
    setenv(name, value, 1);
  }
  for (int i = 0; i < 2000; ++i) {
    char name[32];
    snprintf(name, sizeof name, "SHORT_%d", i);
    setenv(name, "v", 1);
  }
}

CASE(huge_environment) {
  if (!is_second_stage()) {
    run_second_stage(fill_environment);
    return;
  }
  live();
  CHECK(strlen(getenv("LONG_9")) == 99999, "the environment was changed");
}

// Options that mean something to another allocator.
static void set_foreign_options(void) {
  setenv("MALLOC_ARENA_MAX", "1", 1);
  setenv("MALLOC_CHECK_", "3", 1);
  setenv("MALLOC_PERTURB_", "165", 1);
  setenv("MALLOC_CONF", "abort:true", 1);
  setenv("GLIBC_TUNABLES", "glibc.malloc.check=3:glibc.malloc.tcache_count=0", 1);
}

CASE(options_of_another_allocator) {
  if (!is_second_stage()) {
    run_second_stage(set_foreign_options);
    return;
  }
  live();
}

static void stop_randomising(void) {
  if (personality(ADDR_NO_RANDOMIZE) == -1) {
    skip_case("personality: %s", strerrorname_np(errno));
  }
}
static void use_old_layout(void) {
  if (personality(ADDR_COMPAT_LAYOUT | READ_IMPLIES_EXEC) == -1) {
    skip_case("personality: %s", strerrorname_np(errno));
  }
}

CASE(fixed_address_layout) {
  if (!is_second_stage()) {
    run_second_stage(stop_randomising);
    return;
  }
  live();
}
CASE(old_address_layout) {
  if (!is_second_stage()) {
    run_second_stage(use_old_layout);
    return;
  }
  live();
}

static void turn_huge_pages_off(void) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

CASE(huge_pages_turned_off) {
  if (!is_second_stage()) {
    run_second_stage(turn_huge_pages_off);
    return;
  }
  live();
}

static void use_one_processor(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) {
    skip_case("sched_setaffinity: %s", strerrorname_np(errno));
  }
}

CASE(one_processor) {
  if (!is_second_stage()) {
    run_second_stage(use_one_processor);
    return;
  }
  live();
}

// Spinning for a lock whose holder cannot run would never end under a real-time policy.
CASE(real_time_threads_on_one_processor) {
  use_one_processor();
  const struct sched_param priority = {.sched_priority = 2};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) {
    skip_case("sched_setscheduler: %s", strerrorname_np(errno));
  }
  for (int round = 0; round < 20; ++round) {
    pthread_t threads[4];
    for (size_t i = 0; i < 4; ++i) {
      threads[i] = start_thread(exercise_thread, (void*)i);
      const struct sched_param own = {.sched_priority = (int)i + 1};
      CHECK(pthread_setschedparam(threads[i], i == 3 ? SCHED_RR : SCHED_FIFO, &own) == 0,
            "pthread_setschedparam");
    }
    for (size_t i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  }
}

// The setting is the whole machine's, and made by the test runner when it may.
CASE(strict_overcommit) {
  char mode = '0';
  int descriptor = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
  if (descriptor < 0 || read(descriptor, &mode, 1) != 1 || mode != '2') {
    skip_case("the machine does not account strictly for memory");
  }
  close(descriptor);
  live();
  errno = 0;
  CHECK(hidden(malloc(hidden_size((size_t)1 << 44))) == NULL && errno == ENOMEM,
        "malloc of 16 TiB");
  live();
}

// The limit is set, and this process put under it, by the test runner. A live set of 40 MiB in a
// group of 96: memory kept free for later must not get the process killed.
CASE(group_of_96_mib) {
  enum { kMost = 20000 };
  static unsigned char* blocks[kMost];
  static const size_t sizes[] = {2500, 40000, 300000, MIB, 3000, 100000, 5 * MIB, 2100};
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
      size_t count = 40 * (size_t)MIB / sizes[i];
      for (size_t j = 0; j < count && j < kMost; ++j) {
        blocks[j] = obtain(sizes[i]);
        memset(blocks[j], 1, sizes[i]);
      }
      for (size_t j = 0; j < count && j < kMost; ++j) {
        free(blocks[j]);
      }
    }
    run_thread(exercise_thread, NULL);
  }
}
