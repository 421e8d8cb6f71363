// The end of the process, by every way there is.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cases.h"
#include "stage.h"

namespace {

int report = -1;
struct block_set early_blocks;
struct block_set main_blocks;

void note(char character) {
  if (report >= 0) {
    put(report, character);
  }
}

void work() {
  struct block_set set;
  allocate_set(&set, 1);
  exercise(2, 500);
  free_set(&set);
}

struct Static {
  std::map<int, std::string> entries;
  Static() {
    for (int i = 0; i < 500; ++i) {
      entries[i] = std::string(static_cast<std::size_t>(i), 's');
    }
  }
  ~Static() {
    if (entries.size() != 500) {
      _exit(1);
    }
    entries.clear();
    work();
    note('s');
  }
};
Static static_object;

// Runs first of all constructors with a priority, and last of all destructors.
__attribute__((constructor(101))) void start() { allocate_set(&early_blocks, 1); }
__attribute__((destructor(101))) void finish() {
  free_set(&early_blocks);
  work();
  note('f');
}
__attribute__((destructor)) void finish_early() {
  work();
  note('e');
}

void* allocate_for_ever(void* argument) {
  for (std::uint64_t seed = reinterpret_cast<std::uintptr_t>(argument);; ++seed) {
    exercise(seed, 100);
  }
  return nullptr;
}

void start_threads() {
  for (std::uintptr_t i = 0; i < 3; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, allocate_for_ever, reinterpret_cast<void*>(i)) == 0,
          "pthread_create");
    pthread_detach(thread);
  }
}

void register_all() {
  CHECK(atexit([] {
          free_set(&main_blocks);
          work();
          note('a');
        }) == 0,
        "atexit");
  CHECK(on_exit(
            [](int, void* block) {
              free(block);
              work();
              note('o');
            },
            obtain(100)) == 0,
        "on_exit");
  for (int i = 0; i < 100; ++i) {
    CHECK(atexit([] { free(obtain(100)); }) == 0, "atexit");
  }
  allocate_set(&main_blocks, 2);
}

// Runs `end` in a child with everything registered, and checks how it ends and what it reports.
using End = void (*)();
End end_of_child = nullptr;

void expect_end(End end, int wait_status, const char* text) {
  end_of_child = end;
  expect_child(
      [](int descriptor) {
        report = descriptor;
        register_all();
        end_of_child();
      },
      wait_status, text);
}

constexpr int kWaitStatusOfExit3 = 3 << 8;

// An exit handler that registers another, and a thread that ends the process.
void exit_in_exit_handler() {
  atexit([] {
    work();
    atexit([] {
      work();
      note('n');
    });
  });
  exit(3);
}

void* exit_from_thread(void*) {
  struct block_set set;
  allocate_set(&set, 1);
  exit(3);
}

}  // namespace

CASE(exit_runs_everything_that_allocates) {
  expect_end([] { exit(3); }, kWaitStatusOfExit3, "oasef");
}

CASE(return_from_main_runs_everything) {
  // This process ends as main returns; whatever fails there ends it with another status.
  register_all();
  static_object.entries[0] = "changed";
}

CASE(exit_handlers_register_others) {
  expect_end(exit_in_exit_handler, kWaitStatusOfExit3, "noasef");
}

CASE(exit_while_threads_allocate) {
  for (int round = 0; round < 20; ++round) {
    expect_end(
        [] {
          start_threads();
          exercise(1, 1000);
          exit(3);
        },
        kWaitStatusOfExit3, "oasef");
  }
}

CASE(exit_from_another_thread) {
  for (int round = 0; round < 20; ++round) {
    expect_end(
        [] {
          pthread_t thread;
          CHECK(pthread_create(&thread, nullptr, exit_from_thread, nullptr) == 0, "pthread_create");
          pthread_join(thread, nullptr);
        },
        kWaitStatusOfExit3, "oasef");
  }
}

CASE(immediate_exit_runs_nothing) {
  for (int round = 0; round < 10; ++round) {
    expect_end(
        [] {
          start_threads();
          exercise(1, 1000);
          _exit(3);
        },
        kWaitStatusOfExit3, "");
  }
}

CASE(quick_exit_runs_its_own_handlers) {
  expect_end(
      [] {
        at_quick_exit([] {
          free_set(&main_blocks);
          work();
          note('q');
        });
        start_threads();
        quick_exit(3);
      },
      kWaitStatusOfExit3, "q");
}

CASE(abort_ends_by_its_signal) {
  for (int round = 0; round < 10; ++round) {
    expect_end(
        [] {
          signal(SIGABRT, [](int) { note('h'); });
          start_threads();
          exercise(1, 500);
          abort();
        },
        SIGABRT, "h");
  }
}

CASE(terminate_ends_by_abort) {
  expect_end(
      [] {
        std::set_terminate([] {
          work();
          note('t');
          abort();
        });
        throw std::string("nobody catches this");
      },
      SIGABRT, "t");
}

CASE(exec_replaces_a_busy_process) {
  for (int round = 0; round < 10; ++round) {
    expect_end(
        [] {
          start_threads();
          exercise(1, 500);
          execl("/bin/sh", "sh", "-c", "exit 3", static_cast<char*>(nullptr));
        },
        kWaitStatusOfExit3, "");
  }
}

// Output that waits in a stream's buffer, which the exit writes and frees.
CASE(buffered_output_is_written_at_exit) {
  expect_child(
      [](int descriptor) {
        FILE* stream = fdopen(descriptor, "w");
        CHECK(stream != nullptr, "fdopen");
        setvbuf(stream, static_cast<char*>(obtain(100000)), _IOFBF, 100000);
        for (int i = 0; i < 20; ++i) {
          fputs("text.", stream);
        }
        exit(0);
      },
      0,
      "text.text.text.text.text.text.text.text.text.text."
      "text.text.text.text.text.text.text.text.text.text.");
}
