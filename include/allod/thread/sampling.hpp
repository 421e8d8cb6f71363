// Samples of allocations, which a policy may add to a heap.
#pragma once

#include <atomic>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::thread {

// Slow paths call a Sampler. All functions are static and thread-safe.
//   is_on()                 whether allocations are counted and sampled
//   may_know()              whether there may be a sample that was not freed
//   period()                changes each time that sampling begins
//   draw(bytes)             random distance in bytes to the next sample, for a class of `bytes`; at
//                           least 1
//   is_due(bytes)           whether a block of `bytes` that is not counted is a sample, at random
//   allocate(size, alignment, bytes, zero)
//                           a block that is a sample, of a class of `bytes`; null if it cannot be
//                           made. Sets `*zero` if not null.
//   note(block, size, bytes)
//                           makes a block that is a span a sample
//   is_sample(tag)          whether a block with this tag may be a sample
//   forget(block)           before a block, perhaps a sample, is freed; false if the sampler
//                           frees it later
//   give_back(tag, block)   frees a block of allocate() that was forgotten. A signal handler that
//                           allocates meanwhile does not wait for this
//   is_busy()               whether the caller is a signal handler that interrupted one of these
struct NoSampler {
  static constexpr bool is_on() noexcept { return false; }
  static constexpr bool may_know() noexcept { return false; }
  static constexpr std::uint32_t period() noexcept { return 0; }
  static std::uint64_t draw(std::size_t) noexcept { return ~std::uint64_t{0}; }
  static constexpr bool is_due(std::size_t) noexcept { return false; }
  static void* allocate(std::size_t, std::size_t, std::size_t, bool*) noexcept { return nullptr; }
  static void note(void*, std::size_t, std::size_t) noexcept {}
  static bool is_sample(std::uint32_t) noexcept { return false; }
  static void give_back(std::uint32_t, void*) noexcept {}
  static constexpr bool is_busy() noexcept { return false; }
  static bool forget(void*) noexcept { return true; }
};

template <class Policy>
struct SamplerOf {
  using Type = NoSampler;
};
template <class Policy>
  requires requires { typename Policy::Sampler; }
struct SamplerOf<Policy> {
  using Type = typename Policy::Sampler;
};

// Counts of one class that threads share.
struct SharedCount {
  std::atomic<std::uint64_t> allocated{0};
  std::atomic<std::uint64_t> freed{0};
};

}  // namespace allod::thread
