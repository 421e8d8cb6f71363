// C++ objects of threads, destroyed when the thread ends, before and after much else.
#include <malloc.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"
#include "stage.h"

namespace {

std::atomic<int> destroyed{0};

// Allocates and frees in its destructor, also what other threads allocated.
struct Late {
  block_set set;
  std::map<int, std::string> entries;
  std::shared_ptr<std::string> shared;

  explicit Late(std::uint64_t seed) {
    allocate_set(&set, seed);
    for (int i = 0; i < 100; ++i) {
      entries[i] = std::string(static_cast<std::size_t>(i) * 7, 'e');
    }
  }
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late() {
    free_set(&set);
    for (const auto& [key, value] : entries) {
      CHECK(value.size() == static_cast<std::size_t>(key) * 7, "entry %d", key);
    }
    std::vector<std::string> more;
    for (int i = 0; i < 100; ++i) {
      more.push_back(std::to_string(i) + std::string(50, 'm'));
    }
    exercise(1, 100);
    destroyed.fetch_add(1);
  }
};

thread_local std::unique_ptr<Late> first;
thread_local Late second(2);
// Made by the destructor of another object of the thread.
thread_local std::unique_ptr<Late> made_late;

struct MakesAnother {
  ~MakesAnother() { made_late = std::make_unique<Late>(4); }
};

void use_all(const std::shared_ptr<std::string>& shared) {
  first = std::make_unique<Late>(1);
  first->shared = shared;
  second.shared = shared;
  made_late.reset();
  static thread_local MakesAnother maker;
  CHECK(hidden(&maker) != nullptr, "an object of the thread");
}

}  // namespace

CASE(destructors_allocate_and_free) {
  constexpr int kRounds = 60;
  constexpr int kThreads = 4;
  auto shared = std::make_shared<std::string>(1000, 's');
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back(use_all, shared);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  CHECK(shared.use_count() == 1, "%ld owners", shared.use_count());
  CHECK(destroyed.load() == kRounds * kThreads * 3, "%d objects destroyed", destroyed.load());
}

// The last owner is the thread that ends, whoever allocated.
CASE(last_owner_is_a_thread_that_ends) {
  for (int round = 0; round < 200; ++round) {
    auto shared = std::make_shared<std::string>(100000, 's');
    std::thread thread([owner = std::move(shared)]() mutable {
      static thread_local std::shared_ptr<std::string> kept;
      kept = std::move(owner);
    });
    thread.join();
  }
}

CASE(nothing_is_stranded) {
  std::size_t resident = 0;
  for (int round = 0; round < 500; ++round) {
    if (round == 100) {
      // What is free may be resident or not, as time passes.
      malloc_trim(0);
      resident = resident_bytes();
    }
    std::thread(use_all, nullptr).join();
  }
  malloc_trim(0);
  CHECK(resident_bytes() < resident + 8 * MIB, "400 threads leave %zu KiB",
        (resident_bytes() - resident) / KIB);
}

// Objects of the main thread are destroyed after main, when other threads may still run.
CASE(objects_of_the_main_thread) {
  use_all(std::make_shared<std::string>(1000, 's'));
  std::thread([] {
    for (std::uint64_t seed = 1;; ++seed) {
      exercise(seed, 200);
    }
  }).detach();
}
