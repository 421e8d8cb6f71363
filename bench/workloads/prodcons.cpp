// Pairs of threads: one allocates and writes blocks, the other verifies and frees them. Blocks are
// handed over in batches through a bounded ring, so that the hand-over costs little beside the
// allocator and the number of blocks under way is limited.
#include "harness.hpp"

namespace {

constexpr std::size_t kTableSize = 1U << 12U;
constexpr std::uint64_t kLeast = 16;  // The first eight bytes and the last one do not overlap.

std::uint64_t g_pairs = 1;
std::uint64_t g_batches = 20'000;
std::uint64_t g_batch = 256;
std::uint64_t g_ring = 64;
std::uint64_t g_most = 256;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"pairs", &g_pairs, 1, bench::kMostThreads / 2, "pairs of threads"},
    {"batches", &g_batches, 1, 1'000'000'000, "batches that each producer hands over"},
    {"batch", &g_batch, 1, 65536, "blocks in a batch"},
    {"ring", &g_ring, 1, 65536, "batches under way at most"},
    {"max", &g_most, kLeast, 65535, "largest size in bytes; the smallest is 16"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("prodcons", "producers allocate, consumers free", kParameters);

const std::uint16_t* g_sizes;

struct Channel {
  alignas(128) std::atomic<std::uint64_t> produced{0};
  alignas(128) std::atomic<std::uint64_t> consumed{0};
  unsigned char** blocks;  // g_ring batches of g_batch blocks
  std::uint64_t sum;       // the consumer's
};
Channel g_channels[bench::kMostThreads / 2];

std::uint64_t payload(std::uint64_t number) { return number * 0x9E3779B97F4A7C15U; }

void produce(Channel& channel, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t batch = first; batch < end; ++batch) {
    bench::wait_until(
        [&] { return batch - channel.consumed.load(std::memory_order_acquire) < g_ring; });
    unsigned char** blocks = channel.blocks + batch % g_ring * g_batch;
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      const std::uint64_t number = batch * g_batch + i;
      const std::size_t size = g_sizes[number % kTableSize];
      unsigned char* block = bench::allocate(size);
      *reinterpret_cast<volatile std::uint64_t*>(block) = payload(number);
      bench::write_byte(block + size - 1, number);
      blocks[i] = block;
    }
    channel.produced.store(batch + 1, std::memory_order_release);
  }
}

void consume(Channel& channel, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t batch = first; batch < end; ++batch) {
    bench::wait_until([&] { return channel.produced.load(std::memory_order_acquire) > batch; });
    unsigned char** blocks = channel.blocks + batch % g_ring * g_batch;
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      const std::uint64_t number = batch * g_batch + i;
      const std::size_t size = g_sizes[number % kTableSize];
      unsigned char* block = blocks[i];
      const std::uint64_t head = *reinterpret_cast<volatile std::uint64_t*>(block);
      const std::uint64_t tail = bench::read_byte(block + size - 1);
      if (head != payload(number) || tail != (number & 0xFFU)) [[unlikely]] {
        bench::die("prodcons: block %llu arrived damaged", static_cast<unsigned long long>(number));
      }
      channel.sum += (head ^ tail) + size;
      std::free(block);
    }
    channel.consumed.store(batch + 1, std::memory_order_release);
  }
}

void work(std::size_t index) {
  Channel& channel = g_channels[index / 2];
  auto* const side = index % 2 == 0 ? produce : consume;
  const std::uint64_t warm = g_batches / 10 + 1;
  side(channel, 0, warm);
  bench::pass_gate();
  side(channel, warm, warm + g_batches);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  g_sizes = bench::size_table(kTableSize, kLeast, g_most, g_seed);
  for (std::uint64_t i = 0; i < g_pairs; ++i) {
    g_channels[i].blocks = bench::map_array<unsigned char*>(g_ring * g_batch);
  }
  g_workload.run(2 * g_pairs, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_pairs; ++i) {
    sum = bench::mix(sum, g_channels[i].sum);
  }
  g_workload.report(g_pairs * g_batches * g_batch, sum);
}
