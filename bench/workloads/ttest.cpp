// Random calls of malloc, calloc, realloc and memalign on bins of blocks, after t-test1 of
// W. Gloger's ptmalloc (1996 to 2006). Every thread lives for some rounds: in each it fills and
// empties bins at random. When it ends, it frees what it has, and another one begins. What the
// blocks hold is verified whenever one is freed, grown or shrunk, and calloc's zeros as they come.
#include <algorithm>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kEvery = 128;  // bytes from one byte that is written to the next

std::uint64_t g_threads = 2;
std::uint64_t g_lives = 150;
std::uint64_t g_rounds = 500;
std::uint64_t g_bins = 32;
std::uint64_t g_blocks = 40;
std::uint64_t g_most = 10'000;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, bench::kMostThreads, "threads at a time"},
    {"lives", &g_lives, 1, 1'000'000, "threads that follow each other"},
    {"rounds", &g_rounds, 1, 1'000'000'000, "rounds in the life of a thread"},
    {"bins", &g_bins, 1, 10'000, "bins of a thread"},
    {"blocks", &g_blocks, 1, 10'000, "blocks in a bin"},
    {"max", &g_most, 1, 1U << 24U, "largest size in bytes; most are far smaller"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of all that happens"},
};
bench::Workload g_workload("t-test", "random calls on bins, contents verified", kParameters);

struct Block {
  unsigned char* address;
  std::uint64_t size;
  std::uint64_t stamp;
};

struct alignas(128) Line {
  bench::Random random{0};
  std::uint64_t sum;
  std::uint64_t ops;
};
Line g_lines[bench::kMostThreads];

template <class Visit>
void each_place(std::uint64_t size, Visit visit) {
  for (std::uint64_t at = 0; at < size; at += kEvery) {
    visit(at);
  }
  visit(size - 1);
}

void fill(Block& block, std::uint64_t size, std::uint64_t stamp) {
  block.size = size;
  block.stamp = stamp;
  each_place(size, [&](std::uint64_t at) { bench::write_byte(block.address + at, stamp + at); });
}

void expect(bool correct, const char* what, const Block& block) {
  if (!correct) [[unlikely]] {
    bench::die("t-test: %s: %llu bytes", what, static_cast<unsigned long long>(block.size));
  }
}

// `kept` of its bytes must be what was written.
std::uint64_t verify(const Block& block, std::uint64_t kept) {
  std::uint64_t sum = block.size;
  for (std::uint64_t at = 0; at < kept; at += kEvery) {
    const std::uint64_t value = bench::read_byte(block.address + at);
    expect(value == ((block.stamp + at) & 0xFFU), "a block was overwritten", block);
    sum += value;
  }
  if (kept == block.size) {
    const std::uint64_t last = kept - 1;
    expect(bench::read_byte(block.address + last) == ((block.stamp + last) & 0xFFU),
           "the end of a block was overwritten", block);
  }
  return sum;
}

void drop(Line& line, Block& block) {
  if (block.address != nullptr) {
    line.sum = bench::mix(line.sum, verify(block, block.size));
    std::free(block.address);
    block.address = nullptr;
  }
}

// Small sizes are likelier: the range is halved as often as a coin says so.
std::uint64_t random_size(bench::Random& random) {
  const auto halvings = static_cast<unsigned>(__builtin_ctzll(random.next() | (1U << 10U)));
  return 1 + random.below(std::max<std::uint64_t>(g_most >> halvings, 1));
}

void renew(Line& line, Block& block) {
  const std::uint64_t size = random_size(line.random);
  const std::uint64_t number = line.random.next();
  const std::uint64_t choice = number >> 54U;  // of 1,024
  ++line.ops;
  if (choice < 100 && block.address != nullptr) {
    auto* moved = static_cast<unsigned char*>(std::realloc(block.address, size));
    expect(moved != nullptr, "realloc failed", block);
    block.address = moved;
    line.sum = bench::mix(line.sum, verify(block, std::min(block.size, size)));
    fill(block, size, number);
    return;
  }
  drop(line, block);
  if (choice < 120) {
    const std::size_t alignment = std::size_t{16} << (number & 7U);
    void* address = nullptr;
    expect(posix_memalign(&address, alignment, size) == 0, "posix_memalign failed", block);
    expect(reinterpret_cast<std::uintptr_t>(address) % alignment == 0, "not aligned", block);
    block.address = static_cast<unsigned char*>(address);
  } else if (choice < 220) {
    block.address = static_cast<unsigned char*>(std::calloc(1, size));
    expect(block.address != nullptr, "calloc failed", block);
    each_place(size, [&](std::uint64_t at) {
      expect(bench::read_byte(block.address + at) == 0, "calloc's memory is not zero", block);
    });
  } else {
    block.address = bench::allocate(size);
  }
  fill(block, size, number);
}

void* live(void* argument) {
  Line& line = *static_cast<Line*>(argument);
  // The bins are blocks, too.
  auto* bins = static_cast<Block**>(std::calloc(g_bins, sizeof(Block*)));
  expect(bins != nullptr, "calloc failed", {});
  for (std::uint64_t bin = 0; bin < g_bins; ++bin) {
    bins[bin] = static_cast<Block*>(std::calloc(g_blocks, sizeof(Block)));
    expect(bins[bin] != nullptr, "calloc failed", {});
  }
  for (std::uint64_t round = 0; round < g_rounds; ++round) {
    Block* emptied = bins[line.random.below(g_bins)];
    for (std::uint64_t n = line.random.below(g_blocks); n > 0; --n) {
      drop(line, emptied[line.random.below(g_blocks)]);
    }
    Block* filled = bins[line.random.below(g_bins)];
    for (std::uint64_t n = 1 + line.random.below(2 * g_blocks); n > 0; --n) {
      renew(line, filled[line.random.below(g_blocks)]);
    }
  }
  for (std::uint64_t bin = 0; bin < g_bins; ++bin) {
    std::for_each(bins[bin], bins[bin] + g_blocks, [&](Block& block) { drop(line, block); });
    std::free(bins[bin]);
  }
  std::free(bins);
  return nullptr;
}

void run(Line& line, std::uint64_t lives) {
  line.ops = 0;
  for (std::uint64_t n = 0; n < lives; ++n) {
    pthread_join(bench::start_thread(live, &line), nullptr);
  }
}

void work(std::size_t index) {
  run(g_lines[index], g_lives / 10 + 1);
  bench::pass_gate();
  run(g_lines[index], g_lives);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_lines[i].random = bench::Random(g_seed * bench::kMostThreads + i);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  std::uint64_t ops = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_lines[i].sum);
    ops += g_lines[i].ops;
  }
  g_workload.report(ops, sum);
}
