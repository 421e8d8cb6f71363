// operator new of a program, by the header over allod.dll or by the static library.
#ifdef ALLOD_TEST_HEADER
#include <allod/new.hpp>
#else
#include <allod.h>
#endif

#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace {

// Known at run time alone.
volatile std::size_t too_much = SIZE_MAX / 2;

bool is_allods(const void* block) { return allod_malloc_usable_size(block) != 0; }

void new_is_allods() {
  const auto number = std::make_unique<int>(7);
  CHECK(is_allods(number.get()));
  const std::unique_ptr<char[]> text{new char[1000]};
  CHECK(is_allods(text.get()));
  struct alignas(256) Wide {
    char bytes[300];
  };
  const auto wide = std::make_unique<Wide>();
  CHECK(is_allods(wide.get()) && reinterpret_cast<std::size_t>(wide.get()) % 256 == 0);
  CHECK(::operator new(too_much, std::nothrow) == nullptr);
}

void containers_in_threads() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      std::map<std::string, std::vector<int>> map;
      for (int j = 0; j < 2000; ++j) map[std::to_string(j % 300) + " times"].push_back(j);
      CHECK(map.size() == 300);
    });
  }
  for (std::thread& thread : threads) thread.join();
  allod_check();
}

// A destructor of a thread's own object runs before the thread's memory is taken back.
void objects_of_threads() {
  for (int i = 0; i < 100; ++i) {
    std::thread{[] {
      thread_local std::vector<std::string> kept;
      for (int j = 0; j < 100; ++j) kept.push_back(std::string(static_cast<std::size_t>(j), 'x'));
    }}.join();
  }
  allod_check();
}

[[maybe_unused]] void too_much_throws() {
  bool thrown = false;
  try {
    static_cast<void>(::operator new(too_much));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown);
}

}  // namespace

int main(int argc, char** argv) {
  static const test_case cases[] = {
      {"new_is_allods", new_is_allods},
      {"containers_in_threads", containers_in_threads},
      {"objects_of_threads", objects_of_threads},
#ifndef ALLOD_TEST_HEADER
      {"too_much_throws", too_much_throws},
#endif
  };
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}
