// State of a hardened composition.
#pragma once

#include <cstring>

#include "allod/heaps/quarantine.hpp"
#include "allod/heaps/sized_canary.hpp"
#include "allod/tailored/checks.hpp"

namespace allod::tailored {

// Random places, zeroed free blocks, a canary behind each block, and a quarantine. Damage ends the
// process. Used under the heap's lock. The secrets are drawn with the first block, since the heap
// is constant-initialised.
//
// `core` and `owner` are the heap's; `give(block)` frees a block that has waited.
template <class Core>
class Hardening {
  static constexpr ClassIndex kClasses = Core::Sizes::kCount;
  using Canary = heaps::SizedCanary;

 public:
  static constexpr std::size_t kUnknown = ~std::size_t{0};
  // The bytes for a block of `size` bytes.
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t room_for(std::size_t size) noexcept {
    return size > ~std::size_t{0} - Canary::kBytes ? size : size + Canary::kBytes;
  }

  // From class `c`, or kClasses for none. Null without memory.
  template <class Give>
  [[nodiscard]] void* take(Core& core, Owner& owner, ClassIndex c, std::size_t size,
                           std::size_t alignment, Give&& give) noexcept {
    if (!started_) canary_.start();
    started_ = true;
    void* block = nullptr;
    do {
      block = take_zeroed(core, owner, c, size, alignment);
      // Only blocks in quarantine are left.
    } while (block == nullptr && end_waiting(core, owner, give));
    if (block != nullptr) canary_.write(address_of(block), size, core.usable_size(block));
    return block;
  }
  template <class Give>
  void detain(Core& core, Owner& owner, void* block, Give&& give) noexcept {
    const std::size_t bytes = core.usable_size(block);
    if (bytes < kUnwatched) {
      std::memset(block, 0, bytes);
    } else {
      Canary::clear(address_of(block), bytes);
    }
    const auto leave = leaving(core, owner, give);
    if (!waiting_.take(block, bytes, random_, leave)) leave(block);
  }
  // Frees all waiting blocks. False if there was none.
  template <class Give>
  bool end_waiting(Core& core, Owner& owner, Give&& give) noexcept {
    return waiting_.clear(random_, leaving(core, owner, give));
  }
  [[nodiscard]] bool is_waiting(const void* block) noexcept { return waiting_.holds(block); }
  template <class Visit>
  void for_each_waiting(Visit&& visit) noexcept {
    waiting_.for_each(visit);
  }

  // The requested size of a block in use.
  [[nodiscard]] std::size_t size_of(Core& core, const Owner& owner, const void* block) noexcept {
    const std::size_t size = canary_.read(address_of(block), core.usable_size(block));
    if (size != Canary::kDamaged) return size;
    Guardian::fail(is_waiting(block) ? "heap '%s': block %p is used, but was freed"
                                     : "heap '%s': block %p was written past its end",
                   owner.name, block);
  }
  // For a free of `claimed` bytes, or kUnknown.
  void check(Core& core, const Owner& owner, const void* block, std::size_t claimed) noexcept {
    const std::size_t size = canary_.read(address_of(block), core.usable_size(block));
    if (size == Canary::kDamaged) {
      Guardian::fail(is_waiting(block) ? "heap '%s': block %p is freed twice"
                                       : "heap '%s': block %p was written past its end",
                     owner.name, block);
    }
    if (claimed == kUnknown || claimed == size) return;
    Guardian::fail("heap '%s': block %p of %zu bytes is freed as one of %zu", owner.name, block,
                   size, claimed);
  }

 private:
  // From this size on, blocks are neither zeroed nor checked.
  static constexpr std::size_t kUnwatched = std::size_t{128} << 10;

  [[nodiscard]] void* take_zeroed(Core& core, Owner& owner, ClassIndex c, std::size_t size,
                                  std::size_t alignment) noexcept {
    if (c < kClasses) {
      void* const block = core.take_at_random(c, random_.word(), &owner);
      if (block != nullptr) check_unwritten(core, owner, block);
      return block;
    }
    void* const block = core.take_any(room_for(size), alignment, &owner);
    const std::size_t bytes = block != nullptr ? core.usable_size(block) : kUnwatched;
    if (bytes < kUnwatched) std::memset(block, 0, bytes);
    return block;
  }
  void check_unwritten(Core& core, const Owner& owner, const void* block) noexcept {
    const std::size_t bytes = core.usable_size(block);
    if (bytes >= kUnwatched || heaps::is_zero(address_of(block), bytes)) return;
    const auto* const byte = static_cast<const unsigned char*>(block);
    std::size_t at = 0;
    while (byte[at] == 0) ++at;
    Guardian::fail("heap '%s': block %p was written after it was freed, at byte %zu", owner.name,
                   block, at);
  }
  template <class Give>
  [[nodiscard]] auto leaving(Core& core, const Owner& owner, Give& give) noexcept {
    return [this, &core, &owner, &give](void* block) noexcept {
      check_unwritten(core, owner, block);
      give(block);
    };
  }

  Canary canary_;
  random::Sequence random_;
  heaps::Quarantine waiting_;
  bool started_ = false;
};

}  // namespace allod::tailored
