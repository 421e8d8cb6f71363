// Memory stays in proportion to what is live, whoever allocates and whoever frees. That a producer
// and a consumer can make an allocator grow without bound is from Berger, McKinley, Blumofe and
// Wilson, "Hoard: a scalable memory allocator for multithreaded applications".
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cases.h"

namespace {

using std::size_t;

constexpr size_t kMib = MIB;

// A block of which every page is touched.
void* touched(size_t size) {
  auto* block = static_cast<unsigned char*>(obtain(size));
  for (size_t offset = 0; offset < size; offset += 4096) {
    block[offset] = 1;
  }
  return block;
}

// What the process has in memory beyond what it had at the start of the case.
class Growth {
 public:
  Growth() : start_(resident_bytes()) {}
  size_t now() const {
    const size_t bytes = resident_bytes();
    return bytes > start_ ? bytes - start_ : 0;
  }
  void check(const char* when, size_t most) const {
    CHECK(now() <= most, "%s %zu KiB are in memory, at most %zu are allowed", when, now() / KIB,
          most / KIB);
  }

 private:
  size_t start_;
};

constexpr size_t bound(size_t live) { return 3 * live + 16 * kMib; }

// A ring of living blocks between a producer and a consumer: as many live as there are slots.
class Ring {
 public:
  explicit Ring(size_t capacity) : slots_(capacity) {}

  void put(void* block) {
    std::atomic<void*>& slot = slots_[produced_++ % slots_.size()];
    while (void* earlier = slot.load()) {
      slot.wait(earlier);
    }
    slot.store(block);
    slot.notify_one();
  }
  void* take() {
    std::atomic<void*>& slot = slots_[consumed_++ % slots_.size()];
    slot.wait(nullptr);
    void* block = slot.exchange(nullptr);
    slot.notify_one();
    return block;
  }

 private:
  std::vector<std::atomic<void*>> slots_;
  size_t produced_ = 0;
  size_t consumed_ = 0;
};

size_t scattered(size_t index) { return static_cast<size_t>((index * 0x9e3779b97f4a7c15u) >> 33); }

// Runs as many producers as consumers over rings of `capacity` blocks; `size_of(i)` is the size of
// the i-th block, at most `largest` on average.
template <class SizeOf>
void check_rings(size_t pairs, size_t capacity, size_t blocks, size_t largest, SizeOf size_of) {
  const Growth growth;
  const size_t most = bound(pairs * (capacity + 1) * largest);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Ring>> rings;
  for (size_t pair = 0; pair < pairs; ++pair) {
    rings.push_back(std::make_unique<Ring>(capacity));
  }
  for (size_t pair = 0; pair < pairs; ++pair) {
    Ring& ring = *rings[pair];
    threads.emplace_back([&ring, blocks, size_of] {
      for (size_t i = 0; i < blocks; ++i) {
        ring.put(touched(size_of(i)));
      }
    });
    threads.emplace_back([&ring, &growth, blocks, most] {
      for (size_t i = 0; i < blocks; ++i) {
        free(ring.take());
        if (i % 65536 == 0) {
          growth.check("between a producer and a consumer", most);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  growth.check("after producers and consumers", most);
}

}  // namespace

CASE(ring_of_one_size) {
  check_rings(1, 4096, 2000000, 100, [](size_t) { return size_t{100}; });
}

CASE(ring_of_many_sizes) {
  check_rings(1, 4096, 2000000, 1000, [](size_t i) { return 16 + scattered(i) % 1900; });
}

CASE(ring_of_sizes_that_drift) {
  check_rings(1, 4096, 2000000, 2000, [](size_t i) { return 16 + i / 1000 + scattered(i) % 32; });
}

CASE(ring_of_large_blocks) {
  check_rings(1, 64, 60000, 200000, [](size_t i) { return 1000 + scattered(i) % 398000; });
}

CASE(several_rings) {
  check_rings(3, 2048, 500000, 500, [](size_t i) { return 16 + scattered(i) % 900; });
}

namespace {

using Blocks = std::vector<void*>;

Blocks allocate_all(size_t total, size_t least, size_t most) {
  Blocks blocks;
  blocks.reserve(total / ((least + most) / 2) * 2);
  size_t sum = 0;
  for (size_t i = 0; sum < total; ++i) {
    const size_t size = least + scattered(i) % (most - least + 1);
    blocks.push_back(touched(size));
    sum += size;
  }
  return blocks;
}

void free_all(Blocks& blocks) {
  for (void* block : blocks) {
    free(block);
  }
  blocks = Blocks();
}

// Each phase has 300 MiB of other sizes, in a thread of its own; the threads live on or end.
void check_phases(bool threads_live_on) {
  static constexpr size_t kSizes[][2] = {{16, 200},        {1000, 3000}, {20000, 40000},
                                         {100000, 300000}, {16, 64},     {2000000, 6000000}};
  const Growth growth;
  const size_t live = 300 * kMib;
  std::vector<std::thread> threads;
  std::barrier end(static_cast<std::ptrdiff_t>(std::size(kSizes) + 1));
  for (const auto& sizes : kSizes) {
    std::atomic<bool> done = false;
    threads.emplace_back([&] {
      Blocks blocks = allocate_all(live, sizes[0], sizes[1]);
      // Small blocks may cost a third more than was asked for, and each has an address here.
      growth.check("in a phase", live * 3 / 2 + live * 8 / std::max<size_t>(sizes[0], 32));
      free_all(blocks);
      done = true;
      done.notify_one();
      if (threads_live_on) {
        end.arrive_and_wait();
      }
    });
    done.wait(false);
    if (!threads_live_on) {
      threads.back().join();
      threads.pop_back();
    }
  }
  if (threads_live_on) {
    end.arrive_and_wait();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

}  // namespace

CASE(phases_of_threads_that_live_on) { check_phases(true); }
CASE(phases_of_threads_that_end) { check_phases(false); }

// Freed by a thread that goes idle, and wanted by the next: what each keeps for itself is small.
CASE(idle_threads_keep_little) {
  constexpr size_t kThreads = 12;
  const size_t live = 40 * kMib;
  const Growth growth;
  std::barrier end(kThreads + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    std::atomic<bool> done = false;
    threads.emplace_back([&] {
      Blocks blocks = allocate_all(live, 16, 2000);
      free_all(blocks);
      done = true;
      done.notify_one();
      end.arrive_and_wait();
    });
    done.wait(false);
    growth.check("with threads idle", bound(live));
  }
  end.arrive_and_wait();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

CASE(short_threads_leave_nothing) {
  constexpr size_t kThreads = 5000;
  constexpr size_t kWarm = 500;
  std::unique_ptr<Growth> growth;
  for (size_t i = 0; i < kThreads; ++i) {
    if (i == kWarm) {
      growth = std::make_unique<Growth>();
    }
    std::thread([i] {
      Blocks blocks = allocate_all(100000, 16, 500 + i % 3000);
      free_all(blocks);
    }).join();
  }
  growth->check("after 4,500 threads", 8 * kMib);
}

// Blocks outlive the thread that made them, and another frees them.
CASE(orphans_are_taken_over) {
  constexpr size_t kThreads = 3000;
  constexpr size_t kWarm = 500;
  constexpr size_t kKept = 20;
  std::unique_ptr<Growth> growth;
  std::vector<Blocks> left(kKept);
  for (size_t i = 0; i < kThreads; ++i) {
    if (i == kWarm) {
      growth = std::make_unique<Growth>();
    }
    std::thread([&left, i] {
      Blocks mine = allocate_all(200000, 16, 1000 + i % 5000);
      Blocks theirs = std::exchange(left[i % kKept], Blocks());
      for (size_t j = 0; j < mine.size(); j += 2) {
        free(mine[j]);
        mine[j] = nullptr;
      }
      free_all(theirs);
      left[i % kKept] = std::move(mine);
    }).join();
  }
  growth->check("after 2,500 threads that left blocks behind", 16 * kMib);
  for (Blocks& blocks : left) {
    free_all(blocks);
  }
}

// Random replacement while the sizes in use move on: after each round, all blocks have the next
// sizes, and what the last ones left must serve them.
CASE(replacement_with_sizes_that_drift) {
  constexpr size_t kBlocks = 40000;
  const Growth growth;
  std::vector<void*> blocks(kBlocks, nullptr);
  size_t largest_live = 0;
  for (size_t round = 0; round < 24; ++round) {
    const size_t size = 24 + round * 60;
    for (size_t i = 0; i < 4 * kBlocks; ++i) {
      void*& slot = blocks[scattered(i + round) % kBlocks];
      free(slot);
      slot = touched(size + scattered(i) % 24);
    }
    largest_live = std::max(largest_live, kBlocks * (size + 24));
    growth.check("in a round of replacement", bound(largest_live));
  }
  for (void* block : blocks) {
    free(block);
  }
}

// One block in a hundred stays of each of many waves: pages pinned by survivors are filled again.
CASE(survivors_do_not_pin_everything) {
  const Growth growth;
  std::vector<void*> survivors;
  for (size_t wave = 0; wave < 30; ++wave) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < 20000; ++i) {
      blocks.push_back(touched(16 + scattered(i) % 1000));
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i % 100 == wave) {
        survivors.push_back(blocks[i]);
      } else {
        free(blocks[i]);
      }
    }
    growth.check("with survivors", bound(12 * kMib));
  }
  for (void* block : survivors) {
    free(block);
  }
}

// A buffer that grows step by step, and others between its steps.
CASE(growing_buffers) {
  const Growth growth;
  for (int round = 0; round < 5; ++round) {
    std::vector<unsigned char*> buffers(8, nullptr);
    for (size_t size = 1000; size <= 6 * kMib; size += size / 3) {
      for (unsigned char*& buffer : buffers) {
        buffer = static_cast<unsigned char*>(hidden(realloc(buffer, size)));
        CHECK(buffer != nullptr, "realloc(p, %zu)", size);
        std::memset(buffer, 1, size);
      }
    }
    growth.check("with growing buffers", bound(48 * kMib));
    for (unsigned char* buffer : buffers) {
      free(buffer);
    }
  }
}
