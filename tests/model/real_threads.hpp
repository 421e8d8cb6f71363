// What tests with real threads have in common.
#pragma once

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../unit/world.hpp"

namespace allod::test {

struct CountMisuse {
  static inline std::atomic<int> count{0};
  static void report(const heap::Misuse&) noexcept { count.fetch_add(1); }
};

// Who allocated a block, and how large it is, stands in its first bytes, and the same at its end.
struct Payload {
  std::uint64_t seed;
  std::uint64_t size;

  static void* write(void* block, Random& random, std::size_t size) {
    auto* const byte = static_cast<unsigned char*>(block);
    const Payload payload{random.next(), size};
    std::memcpy(byte, &payload, sizeof payload);
    std::memcpy(byte + size - sizeof payload, &payload, sizeof payload);
    return block;
  }
  [[nodiscard]] static bool is_whole(const void* block) {
    const auto* const byte = static_cast<const unsigned char*>(block);
    Payload first;
    Payload last;
    std::memcpy(&first, byte, sizeof first);
    std::memcpy(&last, byte + first.size - sizeof last, sizeof last);
    return first.seed == last.seed && first.size == last.size;
  }
};

// Calls `work` with numbers from 1 on, each on a thread of its own.
template <class Work>
void run_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&work, i] { work(static_cast<std::uint64_t>(i) + 1); });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Heap>
[[nodiscard]] std::size_t used_spans(Heap& heap) {
  std::size_t used = 0;
  heap.space().for_each_span(
      [&](const space::Span& span) { used += span.state == space::SpanState::used ? 1 : 0; });
  return used;
}

}  // namespace allod::test
