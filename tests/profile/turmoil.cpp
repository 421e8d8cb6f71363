// A program that is profiled while it loads and unloads libraries, throws, forks, starts programs
// and is interrupted by signals, all at once.
#include <allod.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "cases.h"

namespace {

constexpr int kRounds = 400;
char visitor[4096];
std::atomic<int> running{0};
std::atomic<unsigned> caught{0};

void throw_and_catch(void (*visit)(int)) {
  try {
    visit(5);
  } catch (const std::string& thrown) {
    if (thrown.size() == 64) ++caught;
  }
}

void load_and_unload() {
  for (int i = 0; i < kRounds; ++i) {
    void* const library = dlopen(visitor, RTLD_NOW);
    CHECK(library != nullptr, "%s", dlerror());
    throw_and_catch(reinterpret_cast<void (*)(int)>(dlsym(library, "visit")));
    dlclose(library);
  }
}

[[gnu::noinline]] void throw_here(int depth) {
  const std::vector<std::string> names(3, std::string(50, 'h'));
  if (depth == 0) throw std::string(64, 't');
  throw_here(depth - 1);
}

void throw_often() {
  for (int i = 0; i < 10 * kRounds; ++i) throw_and_catch(throw_here);
}

// In a child: allocates, and ends or becomes another program.
[[noreturn]] void be_a_child(bool starts_program) {
  for (std::size_t size = 1; size < 100000; size *= 3) free(hidden(malloc(size)));
  if (!starts_program) _exit(0);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  setenv("ALLOD_PROFILE", "100", 1);
  execl("/proc/self/exe", "turmoil", "--list", nullptr);
  _exit(1);
}

void fork_and_start() {
  for (int i = 0; i < kRounds / 4; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "no child");
    if (child == 0) be_a_child(i % 2 == 0);
    int status = -1;
    while (waitpid(child, &status, 0) < 0) continue;
    CHECK(status == 0, "a child ended with %#x", status);
  }
}

template <void (*work)()>
void* in_a_thread(void*) {
  work();
  --running;
  return nullptr;
}

template <void (*work)()>
pthread_t start() {
  pthread_t thread;
  ++running;
  CHECK(pthread_create(&thread, nullptr, in_a_thread<work>, nullptr) == 0, "no thread");
  return thread;
}

void interrupt_all_the_time() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGPROF, &action, nullptr) == 0, "no handler");
  const itimerval often = {{0, 1000}, {0, 1000}};
  CHECK(setitimer(ITIMER_PROF, &often, nullptr) == 0, "no timer");
}

int check_depth(const allod_profile_stack_t* stack, void*) {
  // The function that allocates, and what has called it.
  CHECK(stack->depth >= 2 && stack->frames[0] != 0, "a stack of %zu", stack->depth);
  return 0;
}

allod_profile_summary_t summary() {
  allod_profile_summary_t summary;
  CHECK(allod_profile_summary_get(&summary, sizeof summary) == 0, "no summary");
  return summary;
}

// What is switched and asked meanwhile.
void watch_until_all_is_done() {
  for (int i = 0; running != 0; ++i) {
    CHECK(allod_profile_start(i % 2 == 0 ? 1 : 64) == 0, "does not start");
    allod_profile_visit_stacks(check_depth, nullptr);
    if (i % 5 == 0) allod_profile_stop();
    sched_yield();
  }
}

void find_visitor() {
  const ssize_t length = readlink("/proc/self/exe", visitor, sizeof visitor - 64);
  CHECK(length > 0, "where is the program?");
  strcpy(strrchr(visitor, '/') + 1, "libprofile_visitor.so");
}

CASE(libraries_exceptions_children_and_signals_at_once) {
  find_visitor();
  CHECK(allod_profile_start(1) == 0, "does not start");
  interrupt_all_the_time();
  const pthread_t threads[] = {start<load_and_unload>(), start<load_and_unload>(),
                               start<throw_often>(), start<fork_and_start>()};
  watch_until_all_is_done();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  CHECK(caught == 12 * kRounds, "%u exceptions", caught.load());
  CHECK(summary().total_samples > 1000, "%u samples", (unsigned)summary().total_samples);
}

}  // namespace
