// The parts of a composition besides sizes and pages, and the defaults of all.
#pragma once

#include <concepts>
#include <cstdint>

#include "allod/os/linux/linux.hpp"
#include "allod/tailored/pages.hpp"
#include "allod/tailored/sizes.hpp"

namespace allod {

// --- Storage: the memory of blocks -----------------------------------------------------

// Slabs only. A size beyond the largest class is refused.
struct Slabs {
  static constexpr bool kAnySize = false;
  static constexpr bool kMerges = false;
  static constexpr std::size_t kGranule = 64;
};
enum class Merging : bool { no, yes };
// Any size. A block without a class is cut from slabs in multiples of kBytes, or is a run of slabs,
// or a mapping of its own. With Merging::yes, free blocks merge with their neighbours. Without, a
// cut block serves requests of its own size until its slab is empty.
template <Merging kMerging = Merging::yes, std::size_t kBytes = 64>
struct AnySize {
  static_assert(is_power_of_two(kBytes) && kBytes >= 16 && kBytes <= 4096,
                "a granule is a power of two from 16 bytes to 4 KiB");
  static constexpr bool kAnySize = true;
  static constexpr bool kMerges = kMerging == Merging::yes;
  static constexpr std::size_t kGranule = kBytes;
};

// --- Threads: the users of the heap ----------------------------------------------------

enum class Sharing : std::uint8_t { one_thread, central, caching };

struct NoLock {
  void lock() noexcept {}
  void unlock() noexcept {}
};
// Spins briefly, and then sleeps in the kernel.
class FutexLock : public RankedLock<os::Linux, false> {
 public:
  constexpr FutexLock() noexcept : RankedLock{LockRank::domain} {}
};
// Never sleeps: for heaps whose threads have processors of their own.
class SpinLock {
 public:
  void lock() noexcept {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      while (taken_.load(std::memory_order_relaxed)) cpu_relax();
    }
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};
// Any type with lock() and unlock(), such as std::mutex.
template <class L>
concept Lockable = requires(L lock) {
  lock.lock();
  lock.unlock();
};

// No lock and no atomic instruction.
struct OneThread {
  static constexpr Sharing kSharing = Sharing::one_thread;
  using Lock = NoLock;
};
// All threads, one at a time.
template <class L = FutexLock>
struct Central {
  static constexpr Sharing kSharing = Sharing::central;
  using Lock = L;
};
// Magazines for each thread; the lock protects the engine behind them.
template <class L = FutexLock>
struct ThreadCaching {
  static constexpr Sharing kSharing = Sharing::caching;
  using Lock = L;
};

// --- Recycling: the return of free memory to its source --------------------------------

// When more than kBytes are free and present.
template <std::size_t kBytes = std::size_t{1} << 20>
struct RecycleAtOnce {
  static constexpr bool kAutomatic = true;
  static constexpr std::uint32_t kDelayMs = 0;
  static constexpr std::size_t kKeepBytes = kBytes;
};
// Memory that has been free for this time, in the next slow path.
template <std::uint32_t kMilliseconds>
struct RecycleAfter {
  static constexpr bool kAutomatic = true;
  static constexpr std::uint32_t kDelayMs = kMilliseconds;
  static constexpr std::size_t kKeepBytes = 0;
};
// Only by recycle().
struct RecycleWhenTold {
  static constexpr bool kAutomatic = false;
  static constexpr std::uint32_t kDelayMs = 0;
  static constexpr std::size_t kKeepBytes = 0;
};
template <class R>
concept RecyclingPolicy = requires {
  { R::kAutomatic } -> std::convertible_to<bool>;
  { R::kDelayMs } -> std::convertible_to<std::uint32_t>;
  { R::kKeepBytes } -> std::convertible_to<std::size_t>;
};

// --- Checks ----------------------------------------------------------------------------

struct NoChecks {
  static constexpr bool kChecked = false;
  static constexpr bool kHardened = false;
};
// Checks every call: double and invalid frees, blocks of other heaps, wrong sizes, a second thread,
// use after the end. Reports a mistake, and ends the process. Magazines stay empty.
struct Checked {
  static constexpr bool kChecked = true;
  static constexpr bool kHardened = false;
};
// The same checks. Also a canary of 8 bytes with the size behind each block, and a quarantine. Free
// memory is zero and must stay so. Allocation chooses among the free blocks of a class at random.
struct Hardened {
  static constexpr bool kChecked = true;
  static constexpr bool kHardened = true;
};

// --- Observer --------------------------------------------------------------------------

// Where a block was allocated: a line of source, or an address in the program.
struct Site {
  const char* file = nullptr;
  std::uint32_t line = 0;
  const void* caller = nullptr;
};
// An observer is told about every block. Magazines then stay empty, so that none is missed.
struct NoObserver {
  static constexpr bool kWatches = false;
  void allocated(const void*, std::size_t, const Site&) noexcept {}
  void freed(const void*) noexcept {}
  void ended(const char*) noexcept {}
};
template <class O>
concept HeapObserver = requires(O observer, const void* block, std::size_t bytes, const Site& site,
                                const char* heap_name) {
  { O::kWatches } -> std::convertible_to<bool>;
  observer.allocated(block, bytes, site);
  observer.freed(block);
  observer.ended(heap_name);
};

// --- a composition ---------------------------------------------------------------------

// The defaults. A composition derives from this and names the parts that differ.
struct Parts {
  using Sizes = GeometricClasses<16, 1024, 4>;
  using Storage = Slabs;
  using Pages = SystemPages<>;
  using Threads = OneThread;
  using Recycling = RecycleAtOnce<>;
  using Checks = NoChecks;
  using Observer = NoObserver;
};

namespace tailored {

// Whether the composition is sound. Each mistake is reported in one sentence.
template <class P>
struct Sound {
  static constexpr bool kSizes = NamesClasses<typename P::Sizes>;
  static_assert(kSizes, "Sizes must name size classes, as allod::FixedClasses<32, 64, 256> does");
  static constexpr bool kGeometry = [] {
    if constexpr (requires { P::Sizes::kSound; })
      return P::Sizes::kSound;
    else
      return true;
  }();
  static_assert(
      kGeometry,
      "a geometric scheme goes from one power of two to another, in 1, 2, 4, 8 or 16 steps");
  static constexpr bool kPages = PageSource<typename P::Pages>;
  static_assert(kPages, "Pages must be a page source, such as allod::SystemPages<>");
  static constexpr bool kLock = Lockable<typename P::Threads::Lock>;
  static_assert(kLock, "the lock of Threads must have lock() and unlock()");
  static constexpr bool kRecycling = RecyclingPolicy<typename P::Recycling>;
  static_assert(kRecycling, "Recycling must say when, as allod::RecycleAtOnce<> does");
  static constexpr bool kObserver = HeapObserver<typename P::Observer>;
  static_assert(kObserver, "Observer must have allocated(), freed() and ended()");

  // test(spec, size of the class before it, or 0)
  template <class Test>
  static constexpr bool for_all(Test test) noexcept {
    if constexpr (kSizes) {
      for (std::size_t i = 0; i < P::Sizes::kSpecs.size(); ++i) {
        if (!test(P::Sizes::kSpecs[i], i == 0 ? 0 : P::Sizes::kSpecs[i - 1].size)) return false;
      }
    }
    return true;
  }
  static constexpr std::size_t slab_of(const ClassSpec& spec) noexcept {
    return spec.slab_bytes != 0 ? spec.slab_bytes : std::bit_ceil(8 * spec.size);
  }
  static constexpr bool kSome = [] {
    if constexpr (kSizes)
      return P::Storage::kAnySize || P::Sizes::kSpecs.size() > 0;
    else
      return true;
  }();
  static_assert(kSome, "a heap without size classes needs Storage = allod::AnySize<>");
  static constexpr bool kFew = [] {
    if constexpr (kSizes)
      return P::Sizes::kSpecs.size() <= kMostClasses;
    else
      return true;
  }();
  static_assert(kFew, "a heap has at most 128 size classes");
  static constexpr bool kMultiples = for_all([](const ClassSpec& spec, std::size_t) {
    return spec.size != 0 && spec.size % 8 == 0 && spec.size <= kMostClassSize;
  });
  static_assert(kMultiples, "the size of a class is a multiple of 8 bytes, and at most 1 MiB");
  static constexpr bool kAscend =
      for_all([](const ClassSpec& spec, std::size_t before) { return before < spec.size; });
  static_assert(kAscend, "size classes must be given in ascending order, each once");
  static constexpr bool kSlabs = for_all([](const ClassSpec& spec, std::size_t) {
    const std::size_t slab = spec.slab_bytes;
    return slab == 0 || (is_power_of_two(slab) && slab >= kLeastSlab && slab <= kMostSlab);
  });
  static_assert(kSlabs, "the size of a slab is a power of two from 4 KiB to 64 MiB");
  static constexpr bool kHold = for_all([](const ClassSpec& spec, std::size_t) {
    return spec.slab_bytes == 0 || spec.slab_bytes >= spec.size;
  });
  static_assert(kHold, "a slab must hold at least one block of its class");
  static constexpr bool kFit = for_all([](const ClassSpec& spec, std::size_t) {
    if constexpr (kPages)
      return P::Pages::kOnePlace || slab_of(spec) <= P::Pages::kChunkBytes / 2;
    else
      return true;
  });
  static_assert(kFit, "a slab must fit twice into a chunk of the page source");

  static constexpr bool value = kSizes && kGeometry && kPages && kLock && kRecycling && kObserver &&
                                kSome && kFew && kMultiples && kAscend && kSlabs && kHold && kFit;
};

// The composition to compile. An unsound one was reported, and is replaced by the defaults, so that
// no further errors follow.
template <class P>
using Repaired = std::conditional_t<Sound<P>::value, P, Parts>;

}  // namespace tailored
}  // namespace allod
