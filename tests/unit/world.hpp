// What the tests of the layers have in common: a world to run them in, and eyes to see it with.
#pragma once

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "allod/heaps/heap.hpp"
#include "fake_platform.hpp"

namespace allod::test {

// A failed check says what failed before it ends the process.
inline void print_failed_check(const char* what) noexcept {
  std::fprintf(stderr, "check failed: %s\n", what);
  std::fflush(stderr);
}
inline const bool kChecksSpeak = [] {
  check_failure_handler = &print_failed_check;
  return true;
}();

// SplitMix64, after G. Steele, D. Lea and C. Flood: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_{seed} {}

  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In 0 .. bound - 1.
  std::size_t below(std::size_t bound) noexcept { return next() % bound; }
  bool one_in(std::size_t n) noexcept { return below(n) == 0; }
  // Between 1 and `most`, each order of magnitude as likely as the other.
  std::size_t any_magnitude(std::size_t most) noexcept {
    const std::size_t bits = 1 + below(highest_bit(most) + 1);
    const std::size_t value = 1 + (next() & low_bits(static_cast<unsigned>(bits)));
    return value < most ? value : most;
  }

 private:
  std::uint64_t state_;
};

using FakeSpace = space::Space<os::Fake, CheckLevel::expensive>;

// Keeps what it is told. Tests of one program run one after the other.
struct RecordingReporter {
  static inline std::vector<heap::Misuse> reports;
  static void report(const heap::Misuse& misuse) noexcept { reports.push_back(misuse); }
};

struct FakePolicy {
  using Platform = os::Fake;
  using Sizes = sizes::Geometric<std::size_t{1} << 20>;
  using Reporter = RecordingReporter;
  static constexpr CheckLevel kChecks = CheckLevel::expensive;
};

// A heap, with what entry points do around it: magazines first, the heap second.
template <class Policy>
class Program {
 public:
  using Heap = heaps::Heap<Policy>;
  using Domain = typename Heap::Domain;
  using Sizes = typename Policy::Sizes;

  Program() { RecordingReporter::reports.clear(); }
  explicit Program(const heap::HeapOptions& options) : Program{} { start(options); }

  void start(const heap::HeapOptions& options) { heap_.start(options); }

  [[nodiscard]] Heap& heap() noexcept { return heap_; }
  [[nodiscard]] auto& space() noexcept { return heap_.space(); }
  [[nodiscard]] auto& system() noexcept { return heap_.space().platform(); }

  [[nodiscard]] void* allocate(Domain& domain, std::size_t size) noexcept {
    if (size <= Sizes::kMaxSize) {
      if (void* const block = domain.magazines[Sizes::of(size)].pop()) return block;
    }
    return heap_.allocate(domain, size, nullptr);
  }
  // `*zero` says whether the heap vouches for zeros.
  [[nodiscard]] void* allocate_zeroable(Domain& domain, std::size_t size, bool* zero) noexcept {
    *zero = false;
    if (size <= Sizes::kMaxSize) {
      if (void* const block = domain.magazines[Sizes::of(size)].pop()) return block;
    }
    return heap_.allocate(domain, size, zero);
  }
  void release(Domain& domain, void* address) noexcept {
    const space::Tag tag = space().map().tag_of(address_of(address));
    if (domain.owns(tag) && domain.push(tag, address)) return;
    heap_.release(domain, address);
  }
  // As realloc: in place if possible. Null, and nothing changed, when there is no memory.
  [[nodiscard]] void* resize(Domain& domain, void* block, std::size_t size) noexcept {
    if (void* const same = heap_.resize_in_place(&domain, block, size)) return same;
    void* const other = allocate(domain, size);
    if (other == nullptr) return nullptr;
    const std::size_t before = heap_.usable_size(block);
    std::memcpy(other, block, before < size ? before : size);
    release(domain, block);
    return other;
  }
  // The slab that holds a block.
  [[nodiscard]] slab::Slab& slab_of(const void* block) noexcept {
    return *slab::as_slab(space().map().span_of(address_of(block)));
  }

 private:
  Heap heap_;
};

using FakeProgram = Program<FakePolicy>;

}  // namespace allod::test
