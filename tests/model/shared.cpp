// The heap of a process, used by many more threads than may own a domain: they share domains, come
// to caches and to domains of their own, and end in each of these states. Meant to be run under
// ThreadSanitizer as well, where no processor has a cache, but threads have.
#include <gtest/gtest.h>

#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include <array>

#include "allod/os/linux/linux.hpp"
#include "allod/thread/process_heap.hpp"
#include "real_threads.hpp"

namespace allod::test {
namespace {

#ifndef ALLOD_TEST_CACHES
#define ALLOD_TEST_CACHES mixed
#endif

struct SharingPolicy {
  using Platform = os::Linux;
  using Sizes = sizes::Geometric<std::size_t{1} << 20>;
  using Reporter = CountMisuse;
  static constexpr CheckLevel kChecks = CheckLevel::debug;
  static heap::HeapOptions options() noexcept {
    heap::HeapOptions options;
    options.purge_delay_ms = 1;
    options.caches = heap::Caches::ALLOD_TEST_CACHES;
    // The helper is a thread that no sanitizer knows.
    options.purge_thread = false;
    return options;
  }
};
using Process = thread::ProcessHeap<SharingPolicy>;
using Domain = Process::Domain;

struct ReturnNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

class ThreadsThatShare : public testing::Test {
 public:
  void SetUp() override { Process::ensure_started(); }
  void TearDown() override {
    for (std::atomic<void*>& place : places) check_and_release(place.exchange(nullptr));
    // What was on its way is home after the first.
    for (int i = 0; i < 3; ++i) trim_everywhere();
    Process::heap().check_invariants();
    EXPECT_EQ(CountMisuse::count.load(), 0);
    EXPECT_EQ(torn.load(), 0U);
    EXPECT_EQ(used_spans(Process::heap()), 0U);
    EXPECT_EQ(used_caches(true), 0U);
    EXPECT_LE(used_caches(false), std::thread::hardware_concurrency());
  }

  // Each processor has something at hand.
  static void trim_everywhere() {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (!CPU_ISSET(processor, &before)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
      Process::trim();
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  }

  void* make(Random& random, std::size_t most) {
    const std::size_t size = sizeof(Payload) * 2 + random.any_magnitude(most);
    return Payload::write(Process::allocate<ReturnNull>(size), random, size);
  }
  void check_and_release(void* block) {
    if (block == nullptr) return;
    if (!Payload::is_whole(block)) torn.fetch_add(1);
    Process::release(block);
  }
  // Leaves a block, and frees what somebody has left before.
  void swap(Random& random, std::size_t most) {
    void* const mine = random.one_in(3) ? nullptr : make(random, most);
    check_and_release(places[random.below(places.size())].exchange(mine));
  }

  // Of threads, or of processors.
  static std::size_t used_caches(bool of_threads) {
    std::size_t used = 0;
    LockGuard guard{Process::heap().registry_lock()};
    Process::heap().for_each_domain([&](const Domain& domain) {
      Process::Heap::for_each_cache(domain, [&](const auto& cache) {
        used += cache.is_used && (cache.thread != 0) == of_threads ? 1 : 0;
      });
    });
    return used;
  }
  // May threads own domains?
  static bool own() { return domains_in(heap::DomainState::active) > 0; }
  static std::size_t domains_in(heap::DomainState state) {
    std::size_t count = 0;
    LockGuard guard{Process::heap().registry_lock()};
    Process::heap().for_each_domain(
        [&](const Domain& domain) { count += domain.state == state ? 1 : 0; });
    return count;
  }

  static constexpr int kThreads = 24;
  static constexpr int kSteps = kThreadSanitizer ? 10'000 : 60'000;
  std::array<std::atomic<void*>, 512> places{};
  std::atomic<std::uint64_t> torn{0};
  pthread_key_t key{};
};

TEST_F(ThreadsThatShare, keep_every_block_whole) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed};
    for (int step = 0; step < kSteps; ++step) swap(random, 4000);
  });
}

TEST_F(ThreadsThatShare, keep_blocks_of_all_sizes_whole) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed * 1000};
    for (int step = 0; step < kSteps / 10; ++step) {
      swap(random, std::size_t{2} << 20);
      if (random.one_in(2000)) Process::trim();
    }
  });
}

// Lives of a few operations, of some hundreds, and of thousands.
TEST_F(ThreadsThatShare, lose_nothing_when_they_end) {
  run_threads(kThreads / 2, [&](std::uint64_t seed) {
    Random random{seed * 7};
    for (int step = 0; step < kSteps;) {
      const int life = static_cast<int>(random.any_magnitude(4000));
      std::thread{[&, life] {
        for (int i = 0; i < life; ++i) swap(random, 600);
      }}.join();
      step += life + 100;
    }
  });
}

TEST_F(ThreadsThatShare, own_few_domains) {
  const std::size_t owners = std::max<std::size_t>(8, 4 * std::thread::hardware_concurrency());
  std::atomic<std::size_t> most{0};
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed};
    for (int step = 0; step < kSteps / 2; ++step) {
      swap(random, 60'000);
      if (step % 1000 == 0) most = std::max(most.load(), domains_in(heap::DomainState::active));
    }
  });
  if (!own()) {
    EXPECT_EQ(most.load(), 0U) << "all belong to processors";
    return;
  }
  EXPECT_GT(most.load(), 1U);
  EXPECT_LE(most.load(), owners);
  EXPECT_EQ(domains_in(heap::DomainState::active), 1U) << "places become free again";
}

TEST_F(ThreadsThatShare, use_caches_of_processors_where_there_are_any) {
  if (!kHasSequences) GTEST_SKIP() << "Allod has no sequences on this processor";
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed};
    for (int step = 0; step < 100; ++step) swap(random, 1000);
  });
  if (kThreadSanitizer || os::SequenceArea::processor() < 0) {
    GTEST_SKIP() << "the system has no restartable sequences here";
  }
  EXPECT_GE(used_caches(false), 1U);
}

// So that the kernel has to begin sequences anew.
TEST_F(ThreadsThatShare, are_interrupted_by_signals) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction action{};
  struct sigaction before{};
  action.sa_flags = SA_RESTART;
  action.sa_handler = [](int) { signals.fetch_add(1); };
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  constexpr itimerval kOften{{0, 50}, {0, 50}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &kOften, nullptr), 0);
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed};
    for (int step = 0; step < kSteps; ++step) swap(random, 500);
  });
  constexpr itimerval kNever{};
  ASSERT_EQ(setitimer(ITIMER_REAL, &kNever, nullptr), 0);
  ASSERT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_GT(signals.load(), 0);
}

TEST_F(ThreadsThatShare, take_blocks_back_from_the_one_that_has_a_domain) {
  Random random{1};
  std::vector<void*> blocks(20'000);
  for (void*& block : blocks) block = make(random, 300);
  run_threads(4, [&](std::uint64_t thread) {
    for (std::size_t i = thread - 1; i < blocks.size(); i += 4) check_and_release(blocks[i]);
  });
}

// What a thread-local destructor of the program may do after ours.
TEST_F(ThreadsThatShare, go_on_after_their_end_was_noticed) {
  static ThreadsThatShare* self;
  self = this;
  pthread_key_t late;
  ASSERT_EQ(pthread_key_create(&late,
                               [](void* rounds) {
                                 Random random{5};
                                 for (int i = 0; i < 3000; ++i) self->swap(random, 1000);
                                 const auto left = reinterpret_cast<std::uintptr_t>(rounds) - 1;
                                 pthread_setspecific(self->key, reinterpret_cast<void*>(left));
                               }),
            0);
  key = late;
  run_threads(4, [&](std::uint64_t seed) {
    Random random{seed};
    for (int step = 0; step < 2000; ++step) swap(random, 1000);
    pthread_setspecific(late, reinterpret_cast<void*>(3));
  });
  pthread_key_delete(late);
}

}  // namespace
}  // namespace allod::test
