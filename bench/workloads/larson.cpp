// A server that never ends, after P. Larson and M. Krishnan, "Memory Allocation for Long-Running
// Server Applications", 1998: every thread replaces random objects of a set, starts a thread that
// inherits the set, and ends. So objects bleed: what a thread inherits was made by others, which
// are gone. The objects come from operator new; with `sized`, operator delete is told their size.
#include <dlfcn.h>
#include <semaphore.h>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kLeast = 8;

std::uint64_t g_threads = 2;
std::uint64_t g_objects = 5'000;
std::uint64_t g_lives = 400;
std::uint64_t g_ops = 50'000;
std::uint64_t g_most = 1'000;
std::uint64_t g_sized = 0;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, bench::kMostThreads, "threads at a time"},
    {"objects", &g_objects, 1, 10'000'000, "objects in the set of a thread"},
    {"lives", &g_lives, 1, 1'000'000, "threads that follow each other"},
    {"ops", &g_ops, 1, 1'000'000'000'000, "replacements in the life of a thread"},
    {"max", &g_most, kLeast, 1U << 20U, "largest size in bytes; the smallest is 8"},
    {"sized", &g_sized, 0, 1, "whether delete is told the size"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("larson", "threads inherit and replace objects", kParameters);

// The operators of the allocator under test. The C++ runtime's own only call malloc and free, so
// that runtime is not loaded for their sake.
struct Operators {
  void* (*make)(std::size_t) = std::malloc;
  void (*drop)(void*) = std::free;
  void (*drop_sized)(void*, std::size_t) = [](void* block, std::size_t) { std::free(block); };

  void find() {
    find(make, "_Znwm");
    find(drop, "_ZdlPv");
    find(drop_sized, "_ZdlPvm");
  }

 private:
  template <class Function>
  static void find(Function*& function, const char* name) {
    if (void* found = dlsym(RTLD_DEFAULT, name); found != nullptr) {
      function = reinterpret_cast<Function*>(found);
    }
  }
};
Operators g_operator;

// What a thread hands to the next.
struct alignas(128) Estate {
  bench::Block* objects;
  bench::Random random{0};
  std::uint64_t lives;  // yet to come
  std::uint64_t sum;
  pthread_t before;  // the thread that handed it over, or 0
  sem_t ended;       // posted by the last thread
};
Estate g_estates[bench::kMostThreads];

bench::Block make(std::uint64_t size, std::uint64_t stamp) {
  auto* at = static_cast<unsigned char*>(g_operator.make(size));
  if (at == nullptr) [[unlikely]] {
    bench::die("larson: no memory for %llu bytes", static_cast<unsigned long long>(size));
  }
  const bench::Block object{at, static_cast<std::uint32_t>(size),
                            static_cast<std::uint32_t>(stamp)};
  bench::touch(object);
  return object;
}

template <bool Sized>
std::uint64_t drop(const bench::Block& object) {
  const std::uint64_t sum = bench::verify(object);
  if constexpr (Sized) {
    g_operator.drop_sized(object.at, object.size);
  } else {
    g_operator.drop(object.at);
  }
  return sum;
}

template <bool Sized>
[[gnu::noinline]] void serve(Estate& estate) {
  bench::Random random = estate.random;
  std::uint64_t sum = estate.sum;
  for (std::uint64_t i = 0; i < g_ops; ++i) {
    const std::uint64_t number = random.next();
    bench::Block& object = estate.objects[((number >> 32U) * g_objects) >> 32U];
    sum = bench::mix(sum, drop<Sized>(object));
    object = make(kLeast + (((number & 0xFFFFFFFFU) * (g_most - kLeast + 1)) >> 32U), i);
  }
  estate.random = random;
  estate.sum = sum;
}

void* live(void* argument);

void start_next(Estate& estate) {
  --estate.lives;
  bench::start_thread(live, &estate);
}

void* live(void* argument) {
  Estate& estate = *static_cast<Estate*>(argument);
  (g_sized != 0 ? serve<true> : serve<false>)(estate);
  // The one before ended while this one worked; this one ends while the next one works.
  if (estate.before != 0) {
    pthread_join(estate.before, nullptr);
  }
  estate.before = pthread_self();
  if (estate.lives > 0) {
    start_next(estate);
  } else {
    sem_post(&estate.ended);
  }
  return nullptr;
}

void run_lives(Estate& estate, std::uint64_t lives) {
  estate.lives = lives;
  estate.before = 0;
  start_next(estate);
  while (sem_wait(&estate.ended) != 0) {
  }
  pthread_join(estate.before, nullptr);
}

void work(std::size_t index) {
  Estate& estate = g_estates[index];
  run_lives(estate, g_lives / 10 + 1);
  bench::pass_gate();
  run_lives(estate, g_lives);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  g_operator.find();
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_estates[i].objects = bench::map_array<bench::Block>(g_objects);
    g_estates[i].random = bench::Random(g_seed * bench::kMostThreads + i);
    sem_init(&g_estates[i].ended, 0, 0);
  }
  // The main thread makes the first objects, and spreads them over the sets in turn.
  bench::Random random(g_seed);
  for (std::uint64_t n = 0; n < g_objects; ++n) {
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      g_estates[i].objects[n] = make(random.between(kLeast, g_most), n);
    }
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_estates[i].sum);
    for (std::uint64_t n = 0; n < g_objects; ++n) {
      sum += drop<false>(g_estates[i].objects[n]);
    }
  }
  g_workload.report(g_threads * g_lives * g_ops, sum);
}
