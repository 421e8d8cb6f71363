// The heap of this library, composed by a policy.
#pragma once

#include <type_traits>

#include "allod/os/linux/linux.hpp"
#include "allod/thread/process_heap.hpp"
#include "instance/hardened_linux.hpp"
#include "settings/mitigations.hpp"
#include "settings/variant.hpp"

namespace allod {

// Reports misuse to the user, and aborts unless an option forbids it.
struct ReportToUser {
  static void report(const heap::Misuse& misuse) noexcept;
};

// The rate of guarded samples; see guards.hpp.
class GuardedSamples {
 public:
  [[nodiscard]] static bool are_on() noexcept { return period() != 0; }
  // On average, one allocation in so many is guarded; 0: none.
  [[nodiscard]] static std::size_t period() noexcept {
    return period_.load(std::memory_order_relaxed);
  }
  // Must be called before the heap starts.
  static void choose_period(std::size_t period) noexcept {
    period_.store(period, std::memory_order_relaxed);
  }

 private:
  static inline constinit std::atomic<std::size_t> period_{0};
};

// Sampled allocations with their call stacks; see profile.hpp.
class Profile {
 public:
  static bool is_on() noexcept { return interval_.load(std::memory_order_relaxed) != 0; }
  static bool may_know() noexcept { return used_.load(std::memory_order_relaxed); }
  static std::uint64_t period() noexcept { return period_.load(std::memory_order_relaxed); }
  static void* allocate(std::size_t size, std::size_t alignment, std::size_t bytes,
                        bool* zero) noexcept;
  static void note(void* block, std::size_t size, std::size_t bytes) noexcept;
  static bool is_sample(space::Tag tag) noexcept {
    return tag == space::kHugeTag || space::owner_of(tag) == owner_.load(std::memory_order_relaxed);
  }
  static bool is_busy() noexcept;
  static bool forget(void* block) noexcept;
  static void give_back(space::Tag tag, void* block) noexcept;

  // Starts sampling: on average one sample per `interval` bytes; 1: every allocation; 0: the
  // default. For the first slow path, before the heap starts; prepare() must follow.
  static void start_with_process(std::size_t interval) noexcept;
  // Thread-safe. Return false if memory is exhausted.
  static bool prepare() noexcept;
  static bool start(std::size_t interval) noexcept;
  static void stop() noexcept;
  static std::size_t interval() noexcept { return interval_.load(std::memory_order_relaxed); }
  // Id of the heap of small samples; all ones: none.
  static std::uint32_t owner() noexcept { return owner_.load(std::memory_order_relaxed); }

 private:
  static inline constinit std::atomic<std::size_t> interval_{0};
  static inline constinit std::atomic<std::uint64_t> period_{0};
  static inline constinit std::atomic<std::uint32_t> owner_{~0U};
  static inline constinit std::atomic<void*> home_{nullptr};  // heap of small samples
  static inline constinit std::atomic<bool> used_{false};     // has ever been on
};

// The heap's sampler: samples of the profile, and guarded ones.
struct Samples {
  static ALLOD_HOT bool is_on() noexcept { return Profile::is_on() || GuardedSamples::are_on(); }
  static bool may_know() noexcept { return Profile::may_know() || GuardedSamples::are_on(); }
  static std::uint64_t period() noexcept { return Profile::period(); }
  static std::uint64_t draw(std::size_t bytes) noexcept;
  static bool is_due(std::size_t bytes) noexcept;
  static void* allocate(std::size_t size, std::size_t alignment, std::size_t bytes,
                        bool* zero) noexcept;
  static void note(void* block, std::size_t size, std::size_t bytes) noexcept {
    Profile::note(block, size, bytes);
  }
  static bool is_sample(space::Tag tag) noexcept {
    return Profile::is_sample(tag) || (tag == space::kForeignTag && GuardedSamples::are_on());
  }
  static void give_back(space::Tag tag, void* block) noexcept { Profile::give_back(tag, block); }
  static bool is_busy() noexcept { return Profile::is_busy(); }
  static bool forget(void* block) noexcept;

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0} >> 1;
};

struct LibraryPolicy {
  using Sampler = Samples;
  using Platform = os::Linux;
  using Sizes = sizes::Geometric<std::size_t{4} << 20>;
  using Reporter = ReportToUser;
  ALLOD_HOT static heap::HeapOptions options() noexcept;
};

struct ReleasePolicy : LibraryPolicy {
  static constexpr CheckLevel kChecks = CheckLevel::always;
  // Records who allocated and freed each block.
  static constexpr bool kTracked = false;
  // Keeps the state of each block and checks it; see hardened.hpp.
  static constexpr bool kBlockStates = false;
};

struct DebugPolicy : LibraryPolicy {
  // Destroyed heaps that are kept before their records are reused.
  static constexpr std::uint32_t kKeptHeaps = 64;
  static constexpr CheckLevel kChecks = CheckLevel::debug;
  static constexpr bool kTracked = true;
  static constexpr bool kBlockStates = false;
};

#ifndef ALLOD_MITIGATIONS
#define ALLOD_MITIGATIONS "all,sweep,tags,history"
#endif

struct HardenedPolicy : LibraryPolicy {
  using Platform = HardenedLinux;
  static constexpr CheckLevel kChecks = CheckLevel::always;
  static constexpr bool kTracked = false;
  static constexpr bool kBlockStates = true;
  // Measures that are compiled in. Options choose among these.
  static constexpr Mitigations kMitigations = Mitigations::named(ALLOD_MITIGATIONS);
  ALLOD_HOT static heap::HeapOptions options() noexcept;
  static constexpr unsigned kGroup = 16;
  static void shuffle(void** blocks, std::uint32_t count) noexcept;
  [[nodiscard]] static unsigned choice(unsigned count) noexcept;
};

using Policy = std::conditional_t<
    kVariant == Variant::debug, DebugPolicy,
    std::conditional_t<kVariant == Variant::hardened, HardenedPolicy, ReleasePolicy>>;

using Process = thread::ProcessHeap<Policy>;

// Starts all but the heap itself, which starts with the first allocation. May allocate, and takes
// locks of libc. Idempotent.
ALLOD_HOT void start_process() noexcept;

}  // namespace allod

extern template class allod::heap::Engine<allod::Policy, allod::heaps::Heap<allod::Policy>>;
extern template class allod::heaps::Heap<allod::Policy>;
