// A service with a cache, workers, a leak and fragmentation, for the tests of the live page: what
// it does is known. It reads commands from its input and says "done" after each:
//   hold BYTES BLOCKS     blocks that stay, allocated in Cache::fill
//   leak BYTES BLOCKS     the same, allocated in Sessions::open, and forgotten
//   drop                  frees what is held
//   sparse BYTES BLOCKS   holds blocks and frees all but each 16th
//   plant EVERY BYTES BLOCKS   the same, but the blocks that stay are each EVERYth, allocated in
//                              Pins::plant among others
//   work THREADS BYTES BLOCKS  named threads that hold blocks until the end
//   temporary BYTES BLOCKS     blocks that are freed at once
//   report BYTES BLOCKS   blocks of an allocator of its own, reported
//   heap BYTES BLOCKS     in a first-class heap "tiles"
//   fork                  a child that allocates and ends
//   close                 closes all descriptors but standard input and output
// With "--busy", it does all of this on its own, for people to look at.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "allod.h"

namespace {

using Block = std::unique_ptr<char[]>;

// The compiler must not see that a block is of no use.
template <class T>
[[gnu::noinline]] T used(T block) {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

class Cache {
 public:
  [[gnu::noinline]] void fill(std::size_t bytes, std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) held_.emplace_back(make(bytes));
  }
  void drop() { held_.clear(); }
  void thin_out() {
    std::vector<Block> kept;
    kept.reserve(held_.size() / 16 + 1);
    for (std::size_t i = 0; i < held_.size(); i += 16) kept.push_back(std::move(held_[i]));
    held_.swap(kept);
  }
  [[gnu::noinline]] static char* make(std::size_t bytes) {
    char* const block = used(new char[bytes]);
    memset(block, 1, bytes);
    return block;
  }

 private:
  std::vector<Block> held_;
};

struct Sessions {
  [[gnu::noinline]] static void open(std::size_t bytes, std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) memset(used(new char[bytes]), 2, bytes);
  }
};

class Pins {
 public:
  void plant_among(std::size_t every, std::size_t bytes, std::size_t blocks) {
    std::vector<Block> others;
    others.reserve(blocks);
    for (std::size_t i = 0; i < blocks; ++i) {
      if (i % every == every / 2) {
        held_.emplace_back(plant(bytes));
      } else {
        others.emplace_back(Cache::make(bytes));
      }
    }
  }

 private:
  [[gnu::noinline]] static char* plant(std::size_t bytes) {
    char* const block = used(new char[bytes]);
    memset(block, 4, bytes);
    return block;
  }
  std::vector<Block> held_;
};

struct Parser {
  [[gnu::noinline]] static void parse(std::size_t bytes, std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) delete[] used(new char[bytes]);
  }
};

class Service {
 public:
  bool serve(const std::string& line) {
    std::istringstream words{line};
    std::string what;
    std::size_t threads = 0;
    std::size_t bytes = 0;
    std::size_t blocks = 0;
    words >> what;
    if (what == "work" || what == "plant") words >> threads;
    words >> bytes >> blocks;
    if (what == "hold") return cache_.fill(bytes, blocks), true;
    if (what == "leak") return Sessions::open(bytes, blocks), true;
    if (what == "drop") return cache_.drop(), true;
    if (what == "sparse") return sparse_.fill(bytes, blocks), sparse_.thin_out(), true;
    if (what == "plant") return pins_.plant_among(threads, bytes, blocks), true;
    if (what == "temporary") return Parser::parse(bytes, blocks), true;
    if (what == "work") return work(threads, bytes, blocks), true;
    if (what == "report") return report(bytes, blocks);
    if (what == "heap") return fill_heap(bytes, blocks);
    if (what == "fork") return fork_once();
    if (what == "close") return close_all();
    return false;
  }

 private:
  void work(std::size_t threads, std::size_t bytes, std::size_t blocks) {
    for (std::size_t i = 0; i < threads; ++i) {
      pthread_barrier_t ready;
      pthread_barrier_init(&ready, nullptr, 2);
      std::thread worker{[&ready, bytes, blocks, i] {
        pthread_setname_np(pthread_self(), ("worker-" + std::to_string(i)).c_str());
        Cache own;
        own.fill(bytes, blocks);
        pthread_barrier_wait(&ready);
        for (;;) pause();
      }};
      worker.detach();
      pthread_barrier_wait(&ready);
      pthread_barrier_destroy(&ready);
    }
  }
  // An allocator of its own: it cuts one piece.
  static bool report(std::size_t bytes, std::size_t blocks) {
    using Report = void (*)(const void*, std::size_t);
    const auto tell = reinterpret_cast<Report>(dlsym(RTLD_DEFAULT, "allod_live_report_alloc"));
    const auto take_back =
        reinterpret_cast<void (*)(const void*)>(dlsym(RTLD_DEFAULT, "allod_live_report_free"));
    if (tell == nullptr || take_back == nullptr) return false;
    char* const arena = used(new char[bytes * (blocks + 1)]);
    for (std::size_t i = 0; i <= blocks; ++i) tell(arena + i * bytes, bytes);
    take_back(arena);
    take_back(arena);  // known no longer: nothing happens
    return true;
  }
  static bool fill_heap(std::size_t bytes, std::size_t blocks) {
    const auto make = reinterpret_cast<allod_heap_t* (*)(const allod_heap_options_t*)>(
        dlsym(RTLD_DEFAULT, "allod_heap_new_ex"));
    const auto allocate = reinterpret_cast<void* (*)(allod_heap_t*, std::size_t)>(
        dlsym(RTLD_DEFAULT, "allod_heap_malloc"));
    if (make == nullptr || allocate == nullptr) return false;
    allod_heap_options_t options{};
    options.struct_size = sizeof options;
    options.name = "tiles";
    allod_heap_t* const heap = make(&options);
    for (std::size_t i = 0; i < blocks; ++i) memset(allocate(heap, bytes), 3, bytes);
    return true;
  }
  bool fork_once() {
    const pid_t child = fork();
    if (child == 0) {
      Cache own;
      own.fill(100, 10'000);
      _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
  }
  static bool close_all() {
    for (int file = 3; file < 256; ++file) close(file);
    return true;
  }

  Cache cache_;
  Cache sparse_;
  Pins pins_;
};

[[noreturn]] void be_busy(Service& service) {
  service.serve("work 6 1500 6000");
  service.serve("heap 4096 3000");
  service.serve("sparse 2048 60000");
  service.serve("hold 300 120000");
  for (;;) {
    service.serve("leak 20000 12");
    service.serve("temporary 4000 400");
    service.serve("hold 900 40");
    usleep(50'000);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Service service;
  if (argc > 1 && strcmp(argv[1], "--busy") == 0) be_busy(service);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << (service.serve(line) ? "done" : "failed") << std::endl;
  }
  return 0;
}
