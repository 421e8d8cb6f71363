// Blocks of size 0: addresses without memory.
#pragma once

#include "allod/slab/block_state.hpp"

namespace allod {

// A cell of two bits for each address holds the family of functions that allocated it, or "free".
// Addresses are handed out in turn, so a freed one is not reused soon. Thread-safe, lock-free.
template <class Platform>
class EmptyBlocks {
 public:
  constexpr EmptyBlocks() noexcept = default;

  // To be called once, before all others.
  void start(Platform& platform) noexcept {
    void* const cells = platform.map(kCount / kPerWord * sizeof(Word));
    void* const memory = cells == nullptr ? nullptr : platform.reserve(kCount * kStep, kSliceBytes);
    if (memory == nullptr) return;
    platform.name(memory, kCount * kStep, "allod: empty");
    platform.dump(memory, kCount * kStep, false);
    cells_ = static_cast<std::atomic<Word>*>(cells);
    base_ = address_of(memory);
  }
  // `origin` must not be `any`. Null if none is free.
  [[nodiscard]] void* allocate(slab::Origin origin) noexcept {
    if (base_ == 0) return nullptr;
    const std::uint32_t next = next_.fetch_add(1, std::memory_order_relaxed) % kCount;
    const std::uint32_t index =
        replace(next, slab::Origin::any, origin) ? next : take_from(next, origin);
    if (index == kNone) return nullptr;
    in_use_.fetch_add(1, std::memory_order_relaxed);
    return reinterpret_cast<void*>(base_ + index * kStep);
  }
  [[nodiscard]] bool holds(const void* address) const noexcept {
    return base_ != 0 && address_of(address) - base_ < kCount * kStep;
  }
  // Whether a block of size 0, in use or free, has this address.
  [[nodiscard]] bool is_block(const void* address) const noexcept {
    return (address_of(address) - base_) % kStep == 0;
  }
  // The family that allocated it; `any` if it is free or not a block.
  [[nodiscard]] slab::Origin origin_of(const void* address) const noexcept {
    if (!is_block(address)) return slab::Origin::any;
    const std::uint32_t index = index_of(address);
    return cell_in(cells_[index / kPerWord].load(), index);
  }
  [[nodiscard]] bool is_in_use(const void* address) const noexcept {
    return origin_of(address) != slab::Origin::any;
  }
  // False if it is already free, or was allocated again by another family.
  [[nodiscard]] bool release(const void* address, slab::Origin origin) noexcept {
    if (!replace(index_of(address), origin, slab::Origin::any)) return false;
    in_use_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::uint32_t kCount = 1U << 20;
  static constexpr std::size_t kStep = 16;
  static constexpr std::uint32_t kPerWord = kWordBits / 2;
  static constexpr std::uint32_t kNone = ~0U;

  [[nodiscard]] static unsigned shift_of(std::uint32_t index) noexcept {
    return 2 * (index % kPerWord);
  }
  [[nodiscard]] static slab::Origin cell_in(Word word, std::uint32_t index) noexcept {
    return static_cast<slab::Origin>((word >> shift_of(index)) & 3);
  }
  [[nodiscard]] bool replace(std::uint32_t index, slab::Origin from, slab::Origin to) noexcept {
    std::atomic<Word>& cells = cells_[index / kPerWord];
    const Word change = Word{static_cast<unsigned>(from) ^ static_cast<unsigned>(to)};
    Word word = cells.load(std::memory_order_relaxed);
    do {
      if (cell_in(word, index) != from) return false;
    } while (!cells.compare_exchange_weak(word, word ^ change << shift_of(index)));
    return true;
  }
  // Takes the first free address from `from` on, with wraparound. Later calls continue behind it.
  [[nodiscard, gnu::cold, gnu::noinline]] std::uint32_t take_from(std::uint32_t from,
                                                                  slab::Origin origin) noexcept {
    if (in_use_.load(std::memory_order_relaxed) >= std::int32_t{kCount}) return kNone;
    std::uint32_t index = from;
    for (std::uint32_t words = 0; words <= kCount / kPerWord; ++words) {
      const std::uint32_t first = index - index % kPerWord;
      for (Word free = free_in(first); free != 0; free &= free - 1) {
        const std::uint32_t found = first + lowest_bit(free) / 2;
        if (found < index || !replace(found, slab::Origin::any, origin)) continue;
        next_.store(found + 1, std::memory_order_relaxed);
        return found;
      }
      index = (first + kPerWord) % kCount;
    }
    return kNone;
  }
  // Returns the lower bit of each free cell of a word.
  [[nodiscard]] Word free_in(std::uint32_t first) const noexcept {
    constexpr Word kLower = ~Word{0} / 3;
    const Word word = cells_[first / kPerWord].load(std::memory_order_relaxed);
    return ~(word | word >> 1) & kLower;
  }

  [[nodiscard]] std::uint32_t index_of(const void* address) const noexcept {
    return static_cast<std::uint32_t>((address_of(address) - base_) / kStep);
  }

  Address base_ = 0;
  std::atomic<Word>* cells_ = nullptr;
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::int32_t> in_use_{0};
};

}  // namespace allod
