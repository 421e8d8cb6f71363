// Blocks of no bytes: addresses without memory.
#pragma once

#include "allod/base/base.hpp"

namespace allod {

// Each address is a bit that says whether it is in use. They are given out in turn, so that one
// that was freed does not come again soon. Thread-safe, without locks.
template <class Platform>
class EmptyBlocks {
 public:
  constexpr EmptyBlocks() noexcept = default;

  // Called once, before anything else.
  void start(Platform& platform) noexcept {
    void* const bits = platform.map(kCount / 8);
    void* const memory = bits == nullptr ? nullptr : platform.reserve(kCount * kStep, kSliceBytes);
    if (memory == nullptr) return;
    platform.name(memory, kCount * kStep, "allod: empty");
    bits_ = static_cast<std::atomic<Word>*>(bits);
    base_ = address_of(memory);
  }
  // Null when there is none.
  [[nodiscard]] void* allocate() noexcept {
    if (base_ == 0) return nullptr;
    constexpr int kTries = 64;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const std::uint32_t index = next_.fetch_add(1, std::memory_order_relaxed) % kCount;
      if ((bits_[index / kWordBits].fetch_or(mask(index)) & mask(index)) == 0) {
        return reinterpret_cast<void*>(base_ + index * kStep);
      }
    }
    return nullptr;
  }
  [[nodiscard]] bool holds(const void* address) const noexcept {
    return base_ != 0 && address_of(address) - base_ < kCount * kStep;
  }
  // Is it the address of such a block, in use or not?
  [[nodiscard]] bool is_block(const void* address) const noexcept {
    return (address_of(address) - base_) % kStep == 0;
  }
  [[nodiscard]] bool is_in_use(const void* address) const noexcept {
    const std::uint32_t index = index_of(address);
    return is_block(address) && (bits_[index / kWordBits].load() & mask(index)) != 0;
  }
  // False when it is free.
  [[nodiscard]] bool release(const void* address) noexcept {
    const std::uint32_t index = index_of(address);
    return (bits_[index / kWordBits].fetch_and(~mask(index)) & mask(index)) != 0;
  }

 private:
  static constexpr std::uint32_t kCount = 1U << 20;
  static constexpr std::size_t kStep = 16;

  [[nodiscard]] std::uint32_t index_of(const void* address) const noexcept {
    return static_cast<std::uint32_t>((address_of(address) - base_) / kStep);
  }
  [[nodiscard]] static Word mask(std::uint32_t index) noexcept { return bit(index % kWordBits); }

  Address base_ = 0;
  std::atomic<Word>* bits_ = nullptr;
  std::atomic<std::uint32_t> next_{0};
};

}  // namespace allod
