// A heap on the real system, used by real threads: what random sequences on one thread cannot show.
// Meant to be run under ThreadSanitizer as well.
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <thread>

#include "allod/os/native.hpp"
#include "real_threads.hpp"

namespace allod::test {
namespace {

struct ThreadedPolicy {
  using Platform = os::Native;
  using Sizes = sizes::Geometric<std::size_t{1} << 20>;
  using Reporter = CountMisuse;
  static constexpr CheckLevel kChecks = CheckLevel::debug;
};
using ThreadedProgram = Program<ThreadedPolicy>;
using Domain = ThreadedProgram::Domain;

// Where threads leave blocks for each other.
class Exchange {
 public:
  // Leaves a block, and takes what somebody has left before.
  void* swap(std::size_t place, void* block) { return places_[place % kPlaces].exchange(block); }
  static constexpr std::size_t kPlaces = 512;

 private:
  std::array<std::atomic<void*>, kPlaces> places_{};
};

class HeapOfThreads : public testing::Test {
 protected:
  void SetUp() override {
    CountMisuse::count = 0;
    heap::HeapOptions options;
    options.purge_delay_ms = 1;
    // The helper is a thread that no sanitizer knows; what it does, other threads do as well.
    options.purge_thread = false;
    program->start(options);
  }
  void TearDown() override {
    Domain* const domain = heap.attach();
    ASSERT_NE(domain, nullptr);
    for (std::size_t place = 0; place < Exchange::kPlaces; ++place) {
      if (void* const block = exchange.swap(place, nullptr)) check_and_release(*domain, block);
    }
    heap.trim(*domain);
    heap.detach(*domain);
    // A domain that comes and goes takes everything along that was still on its way.
    for (int i = 0; i < 2; ++i) {
      Domain* const last = heap.attach();
      heap.trim(*last);
      heap.detach(*last);
    }
    heap.check_invariants();
    EXPECT_EQ(CountMisuse::count.load(), 0);
    EXPECT_EQ(torn.load(), 0U);
    EXPECT_EQ(used_spans(heap), 0U);
  }

  void* make(Domain& domain, Random& random, std::size_t most) {
    return make_of(domain, random, sizeof(Payload) * 2 + random.any_magnitude(most));
  }
  void* make_of(Domain& domain, Random& random, std::size_t size) {
    return Payload::write(program->allocate(domain, size), random, size);
  }
  void check(void* block) {
    if (!Payload::is_whole(block)) torn.fetch_add(1);
  }
  void check_and_release(Domain& domain, void* block) {
    check(block);
    program->release(domain, block);
  }

  static constexpr int kThreads = 4;
  static constexpr int kSteps = kThreadSanitizer ? 60'000 : 300'000;
  std::unique_ptr<ThreadedProgram> program = std::make_unique<ThreadedProgram>();
  ThreadedProgram::Heap& heap = program->heap();
  Exchange exchange;
  std::atomic<std::uint64_t> torn{0};
};

TEST_F(HeapOfThreads, keeps_every_block_whole_that_threads_hand_to_each_other) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed};
    Domain& domain = *heap.attach();
    for (int step = 0; step < kSteps; ++step) {
      void* const mine = random.one_in(3) ? nullptr : make(domain, random, 4000);
      void* const theirs = exchange.swap(random.next(), mine);
      if (theirs != nullptr) check_and_release(domain, theirs);
    }
    heap.detach(domain);
  });
}

TEST_F(HeapOfThreads, keeps_blocks_of_all_sizes_whole) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed * 1000};
    Domain& domain = *heap.attach();
    for (int step = 0; step < kSteps / 8; ++step) {
      void* const mine = random.one_in(3) ? nullptr : make(domain, random, std::size_t{2} << 20);
      void* const theirs = exchange.swap(random.below(64), mine);
      if (theirs != nullptr) check_and_release(domain, theirs);
      if (random.one_in(1000)) heap.trim(domain);
    }
    heap.detach(domain);
  });
}

TEST_F(HeapOfThreads, loses_nothing_while_domains_come_and_go) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed * 7};
    Domain* domain = heap.attach();
    for (int step = 0; step < kSteps; ++step) {
      if (random.one_in(200)) {
        heap.detach(*domain);
        // Some go on without a domain for a while, as threads do that are ending.
        for (std::size_t more = random.below(20); more > 0; --more) {
          void* const theirs = exchange.swap(random.next(), nullptr);
          if (theirs == nullptr) continue;
          check(theirs);
          heap.release_detached(theirs);
        }
        domain = heap.attach();
      }
      void* const mine = random.one_in(3) ? nullptr : make(*domain, random, 600);
      void* const theirs = exchange.swap(random.next(), mine);
      if (theirs != nullptr) check_and_release(*domain, theirs);
    }
    heap.detach(*domain);
  });
}

// One slab's worth of blocks goes round and round between few threads: the slab is empty, full,
// announced, adopted and retired as often as can be.
TEST_F(HeapOfThreads, loses_nothing_when_few_blocks_change_hands_all_the_time) {
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed * 31};
    Domain* domain = heap.attach();
    for (int step = 0; step < kSteps; ++step) {
      void* const mine = random.one_in(2) ? nullptr : make(*domain, random, 1);
      void* const theirs = exchange.swap(random.below(6), mine);
      if (theirs != nullptr) check_and_release(*domain, theirs);
      if (random.one_in(20)) heap.trim(*domain);
      if (random.one_in(40)) {
        heap.detach(*domain);
        domain = heap.attach();
      }
    }
    heap.detach(*domain);
  });
}

// The page map changes under a block of many slices while another thread asks it whose that is.
TEST_F(HeapOfThreads, takes_large_blocks_back_while_their_domain_goes) {
  constexpr std::size_t kBlocks = 16;
  constexpr std::size_t kSize = std::size_t{900} << 10;
  std::atomic<bool> done{false};
  run_threads(2, [&](std::uint64_t seed) {
    Random random{seed};
    if (seed == 1) {
      for (int round = 0; round < kSteps / 12; ++round) {
        Domain& domain = *heap.attach();
        for (std::size_t place = 0; place < kBlocks; ++place) {
          void* const before = exchange.swap(place, make_of(domain, random, kSize));
          if (before != nullptr) check_and_release(domain, before);
        }
        heap.detach(domain);
      }
      done = true;
      return;
    }
    Domain& domain = *heap.attach();
    while (!done) {
      for (std::size_t place = 0; place < kBlocks; ++place) {
        void* const block = exchange.swap(place, nullptr);
        if (block != nullptr) check_and_release(domain, block);
      }
    }
    heap.detach(domain);
  });
}

TEST_F(HeapOfThreads, does_not_grow_when_one_thread_allocates_and_others_free) {
  std::atomic<bool> done{false};
  std::atomic<std::size_t> most{0};
  run_threads(2, [&](std::uint64_t seed) {
    Random random{seed};
    Domain& domain = *heap.attach();
    if (seed == 1) {
      for (int step = 0; step < 2 * kSteps; ++step) {
        void* const before = exchange.swap(random.next(), make(domain, random, 200));
        if (before != nullptr) check_and_release(domain, before);
        if (step % 1000 == 0) most = std::max(most.load(), heap.space().counters().used);
      }
      done = true;
    } else {
      while (!done) {
        void* const block = exchange.swap(random.next(), nullptr);
        if (block != nullptr) check_and_release(domain, block);
      }
    }
    heap.detach(domain);
  });
  // At most 512 blocks of up to 232 bytes are live; batches on their way and magazines are bounded.
  EXPECT_LE(most.load(), std::size_t{6} << 20);
}

TEST_F(HeapOfThreads, can_be_asked_questions_meanwhile) {
  std::atomic<int> at_work{kThreads - 1};
  run_threads(kThreads, [&](std::uint64_t seed) {
    Random random{seed * 3};
    if (seed == kThreads) {
      std::uint64_t spans = 0;
      while (at_work != 0) {
        heap.space().for_each_span([&](const space::Span&) { ++spans; });
        static_cast<void>(heap.space().counters());
        static_cast<void>(heap.space().dirty_bytes());
        LockGuard guard{heap.registry_lock()};
        heap.for_each_domain(
            [&](const Domain& domain) { spans += domain.counters.refills.value(); });
      }
      return;
    }
    Domain& domain = *heap.attach();
    for (int step = 0; step < kSteps / 2; ++step) {
      void* const mine = random.one_in(3) ? nullptr : make(domain, random, 100'000);
      void* const theirs = exchange.swap(random.next(), mine);
      if (theirs != nullptr) check_and_release(domain, theirs);
    }
    heap.detach(domain);
    --at_work;
  });
}

}  // namespace
}  // namespace allod::test
