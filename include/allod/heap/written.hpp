// How much of their huge blocks programs write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace allod::heap {

// The resident parts of the latest four, when their owners freed them, or, of a program's first
// ones, when the next was allocated. Nothing is known once many
// blocks were handed out of which none told its part. Thread-safe, approximate.
class Written {
 public:
  void note(std::size_t present, std::size_t bytes) noexcept {
    silent_.store(0, std::memory_order_relaxed);
    const std::size_t share = present / (bytes / kWhole) + 1;
    const std::uint64_t before = shares_.load(std::memory_order_relaxed) << kBits;
    shares_.store(before | (share < kWhole ? share : kWhole), std::memory_order_relaxed);
  }
  // Whether it is worth to ask a block that lives: until four have told, and not for ever.
  [[nodiscard]] bool may_ask() noexcept {
    const bool have_four_told = shares_.load(std::memory_order_relaxed) >> 3 * kBits != 0;
    return !have_four_told && asked_.fetch_add(1, std::memory_order_relaxed) < kMostAsked;
  }
  // A huge block is handed out that will not tell its part. True if it should be made to.
  [[nodiscard]] bool note_silent() noexcept {
    return (silent_.fetch_add(1, std::memory_order_relaxed) + 1) % kSilent == 0;
  }
  // Whether nearly all of each was.
  [[nodiscard]] bool is_whole() const noexcept { return least() >= kWhole - kWhole / 8; }
  // As large a part of `bytes` as of the block of which the least was.
  [[nodiscard]] std::size_t least_of(std::size_t bytes) const noexcept {
    return bytes / kWhole * least();
  }

 private:
  static constexpr unsigned kBits = 16;  // for each of four blocks
  static constexpr std::size_t kWhole = (1U << kBits) - 1;
  // In a row; each of these asks one more to tell its part.
  static constexpr std::uint32_t kSilent = 16;
  static constexpr std::uint32_t kMostSilent = 4 * kSilent;
  static constexpr std::uint32_t kMostAsked = 64;
  [[nodiscard]] std::size_t least() const noexcept {
    if (silent_.load(std::memory_order_relaxed) > kMostSilent) return 0;
    std::size_t least = kWhole;
    for (std::uint64_t left = shares_.load(std::memory_order_relaxed), i = 0; i < 4; ++i) {
      const auto share = static_cast<std::size_t>(left & kWhole);
      if (share < least) least = share;
      left >>= kBits;
    }
    return least;
  }

  std::atomic<std::uint64_t> shares_{0};
  std::atomic<std::uint32_t> silent_{0};
  std::atomic<std::uint32_t> asked_{0};
};

}  // namespace allod::heap
