// A program that had a peak, of which single blocks stay here and there: most pages hold a live
// block or two, or none. Each thread allocates its share, frees all but every n-th block, drawn at
// random, and rests. What is resident is compared with the pages on which a live block lies: no
// allocator that does not move blocks can do with less. Threads that are busy beside may go on all
// the time. What is timed is the peak. There is no warm-up: how the memory falls from there is the
// question.
#include <sys/mman.h>

#include <algorithm>

#include "rest.hpp"

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMostThreads = 64;
constexpr std::uint64_t kBusyLive = 1'000;

std::uint64_t g_mebibytes = 276;
std::uint64_t g_least = 512;
std::uint64_t g_most = 2048;
std::uint64_t g_every = 20;
std::uint64_t g_threads = 1;
std::uint64_t g_busy = 0;
std::uint64_t g_rest = 5'000;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"mebibytes", &g_mebibytes, 1, 1'000'000, "MiB at the peak, of all threads together"},
    {"least", &g_least, bench::Item::kLeast, 1U << 20U, "smallest size in bytes"},
    {"most", &g_most, bench::Item::kLeast, 1U << 20U, "largest size in bytes"},
    {"every", &g_every, 2, 1'000'000, "one in so many blocks stays"},
    {"threads", &g_threads, 1, kMostThreads, "threads that allocate, free and rest"},
    {"busy", &g_busy, 0, kMostThreads, "threads that allocate and free all the time"},
    {"rest", &g_rest, 1, 86'400'000, "milliseconds of rest"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes, and of which blocks stay"},
};
bench::Workload g_workload("holes", "resident size with single live blocks here and there",
                           kParameters);

struct alignas(128) Worker {
  bench::Queue staying;
  std::uint64_t ops;
  std::uint64_t sum;
};
Worker g_workers[kMostThreads];
pthread_barrier_t g_meeting;
std::atomic<bool> g_end{false};

void thin_out(std::size_t index) {
  Worker& worker = g_workers[index];
  bench::Random random(g_seed + index);
  bench::Queue going;
  const std::uint64_t share = (g_mebibytes << 20U) / g_threads;
  for (std::uint64_t bytes = 0; bytes < share; ++worker.ops) {
    const std::uint64_t size = random.between(g_least, g_most);
    const bool stays = random.below(g_every) == 0 || worker.ops == 0;
    (stays ? worker.staying : going).add(bench::make_item(size, worker.ops));
    bytes += size;
  }
  worker.sum = going.free_all();
}

// The first worker is the main thread, which goes on.
void* work_and_rest(void* argument) {
  const auto index = reinterpret_cast<std::uintptr_t>(argument);
  thin_out(index);
  pthread_barrier_wait(&g_meeting);
  if (index == 0) {
    return nullptr;
  }
  pthread_barrier_wait(&g_meeting);
  g_workers[index].sum += g_workers[index].staying.free_all();
  return nullptr;
}

void* be_busy(void* argument) {
  bench::Random random(g_seed + kMostThreads + reinterpret_cast<std::uintptr_t>(argument));
  auto* blocks = bench::map_resident_array<bench::Block>(kBusyLive);
  for (std::uint64_t i = 0; i < kBusyLive; ++i) {
    blocks[i] = bench::make_block(random.between(g_least, g_most), i);
  }
  for (std::uint64_t i = 0; !g_end.load(std::memory_order_relaxed); ++i) {
    bench::Block& block = blocks[random.below(kBusyLive)];
    bench::free_block(block);
    block = bench::make_block(random.between(g_least, g_most), i);
  }
  for (std::uint64_t i = 0; i < kBusyLive; ++i) {
    bench::free_block(blocks[i]);
  }
  return nullptr;
}

// Of the pages on which a byte of a staying block lies. They come in any order, and blocks share
// them.
std::uint64_t live_bytes() {
  std::uint64_t count = 0;
  const auto each_page = [&](auto&& visit) {
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      for (const bench::Item* item = g_workers[i].staying.first(); item != nullptr;
           item = item->next) {
        const auto begin = reinterpret_cast<std::uintptr_t>(item);
        for (std::uint64_t page = begin / kPage; page <= (begin + item->size - 1) / kPage; ++page) {
          visit(page);
        }
      }
    }
  };
  each_page([&](std::uint64_t) { ++count; });
  auto* pages = bench::map_array<std::uint64_t>(count);
  std::uint64_t* end = pages;
  each_page([&](std::uint64_t page) { *end++ = page; });
  std::sort(pages, end);
  const auto different = static_cast<std::uint64_t>(std::unique(pages, end) - pages);
  munmap(pages, count * sizeof *pages);
  return different * kPage;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_least > g_most) {
    g_workload.refuse("--least is above --most");
  }
  pthread_t workers[kMostThreads];
  pthread_t busy[kMostThreads];
  pthread_barrier_init(&g_meeting, nullptr, static_cast<unsigned>(g_threads));
  const std::uint64_t base = bench::exact_resident_kib();
  for (std::uint64_t i = 0; i < g_busy; ++i) {
    busy[i] = bench::start_thread(&be_busy, reinterpret_cast<void*>(i));
  }
  g_workload.start();
  for (std::uint64_t i = 1; i < g_threads; ++i) {
    workers[i] = bench::start_thread(&work_and_rest, reinterpret_cast<void*>(i));
  }
  work_and_rest(nullptr);
  g_workload.stop();
  bench::Rest rest(g_workload, base, {"pages with a live block", live_bytes()});
  rest.run(g_rest, 2'000, "resident over pages with a live block after 2 s",
           "resident over pages with a live block at the end");
  g_end = true;
  for (std::uint64_t i = 0; i < g_busy; ++i) {
    pthread_join(busy[i], nullptr);
  }
  if (g_threads > 1) {
    pthread_barrier_wait(&g_meeting);
  }
  g_workers[0].sum += g_workers[0].staying.free_all();
  std::uint64_t ops = 0;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    if (i != 0) {
      pthread_join(workers[i], nullptr);
    }
    ops += g_workers[i].ops;
    sum = bench::mix(sum, g_workers[i].sum);
  }
  rest.report_series();
  g_workload.report(ops, sum);
}
