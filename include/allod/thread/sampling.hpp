// What a policy may add to a heap: samples of what it hands out.
#pragma once

#include <atomic>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::thread {

// A Sampler is asked in slow paths only. All functions are static and thread-safe.
//   is_on()                 are allocations to be counted and sampled?
//   may_know()              is there perhaps a sample that was not freed?
//   period()                which start this is; changes each time that sampling begins
//   draw(bytes)             in blocks of a class of `bytes`: bytes until the next sample, at
//                           random; at least 1
//   is_due(bytes)           is a block of `bytes`, which nobody counts, a sample? At random
//   allocate(size, alignment, bytes, zero)
//                           a block that is a sample, of a class of `bytes`; null when it
//                           cannot be made. Sets `*zero` if not null.
//   note(block, size, bytes)
//                           a block that is a span of its own becomes a sample
//   is_sample(tag)          may a block with this tag be one?
//   forget(block)           perhaps a sample, which is about to be freed; false when the
//                           sampler has to do that itself, later
//   give_back(tag, block)   frees a block of allocate(), which it knows no longer. A signal handler
//                           that allocates meanwhile does not wait for this
//   is_busy()               has a signal handler interrupted one of these functions?
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

// Counts of one class that many threads share.
struct SharedCount {
  std::atomic<std::uint64_t> allocated{0};
  std::atomic<std::uint64_t> freed{0};
};

}  // namespace allod::thread
