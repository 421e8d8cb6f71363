// realloc in place.
#include <string.h>

#include "hardened/large.hpp"

namespace allod::hardened {

namespace {

[[nodiscard]] std::size_t room_again(const Block& block, std::size_t size) noexcept {
  return room_for(size, 1, block.is_heaps ? Guarded::never : Guarded::if_large);
}

// Whether a large block can keep its place, except for its guard. On older kernels, the guard of a
// span cannot move either.
[[nodiscard]] bool keeps_place(const Block& block, std::size_t before, std::size_t size) noexcept {
  if (block.slab != nullptr) return block.is_large();
  if (!span_of(block).size.just_covers(room_again(block, size))) return false;
  return platform().closes() ||
         spare_pages_of(block, before).from == spare_pages_of(block, size).from;
}
// Erases the canaries, and the bytes that the block loses.
void clear_end(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  if (has_canary(from)) Canary::clear(block.address, before, block.bytes);
  if (size < before && on<Mitigation::zero>()) {
    clear_part(block, block.address + size, before - size);
  }
}
// Resizes a large block in place. `from` is its last live state; the cell is busy.
void* resize_large(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  // Erased first, since move_guard() may close the lost pages.
  const bool is_less = size < before;
  if (is_less) clear_end(block, from, size);
  if (!move_guard(block, before, size)) {
    block.cell.store(from);
    return nullptr;
  }
  if (!is_less) clear_end(block, from, size);
  const BlockState state = BlockState::live(from.origin(), block.bytes - size);
  if (has_canary(state)) canary.write(block.address, size, block.bytes);
  block.cell.store(state);
  return reinterpret_cast<void*>(block.address);
}
// Resizes within the class; `from` as above.
void* resize_in_slab(const Block& block, BlockState from, std::size_t size) noexcept {
  if (has_tag(block)) take_tag(block, block.requested(from));
  clear_end(block, from, size);
  return seal(reinterpret_cast<void*>(block.address), size, from.origin());
}

void* resize_span(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  void* const old = reinterpret_cast<void*>(block.address);
  if (!clear_guard(block, before)) {
    block.cell.store(from);
    return nullptr;
  }
  if (has_canary(from)) Canary::clear(block.address, before, block.bytes);
  void* const same = Process::resize_in_place(old, room_again(block, size));
  if (same == nullptr) {
    static_cast<void>(seal(old, before, from.origin()));
    return nullptr;
  }
  const Block now = find(same);
  if (size < before && on<Mitigation::zero>()) {
    // The platform has already erased the part that was cut off.
    const std::size_t kept = before < now.bytes ? before : now.bytes;
    clear_part(now, now.address + size, kept - size);
  }
  return seal(same, size, from.origin());
}

template <class Range>
[[nodiscard]] ALLOD_INLINE Resized resize_in(Address at, ShortPlace place, std::size_t size,
                                             std::size_t* before) noexcept {
  ShortLook<Range> look;
  if (!look_at<Range>(at, place, Origin::c, &look) || look.damage != 0) return Resized::to_ask;
  *before = look.requested();
  using Measures = Range::Measures;
  const bool stays =
      Range::has_size(size) &&
      Range::bytes_of(Range::class_for(size + Measures::canary_bytes())) == look.bytes;
  if (!stays) return size < heap::kGrowable ? Resized::to_copy : Resized::to_ask;
  if (!look.seize()) return Resized::to_ask;
  if (Measures::template have<Mitigation::canary>()) {
    Canary::clear(at, look.requested(), look.bytes);
  }
  if (size < look.requested() && Measures::template have<Mitigation::zero>()) {
    memset(reinterpret_cast<void*>(at + size), 0, look.requested() - size);
  }
  if (Measures::template have<Mitigation::canary>()) canary.write(at, size, look.bytes);
  const Origin origin = BlockState{look.state}.origin();
  look.store(BlockState::live(origin, look.bytes - size));
  return Resized::in_place;
}

}  // namespace

Resized resize_short(void* block, std::size_t size, std::size_t* before) noexcept {
  const Address at = address_of(block);
  ShortPlace place;
  if (!find_short(at, &place)) return Resized::to_ask;
  Resized resized = Resized::to_ask;
  AnyMeasures::find([&]<class Set>() noexcept {
    if (SmallOf<Set>::has(place.stride)) {
      resized = resize_in<SmallOf<Set>>(at, place, size, before);
    } else if (MediumOf<Set>::has(place.stride)) {
      resized = resize_in<MediumOf<Set>>(at, place, size, before);
    } else {
      return false;
    }
    return true;
  });
  return resized;
}

void* resize(void* address, std::size_t size) noexcept {
  const Block block = find(address);
  if (block.bytes == 0 || size == 0 || size > kMaxBlock) return nullptr;
  const BlockState state = block.cell.load();
  const std::size_t room = room_again(block, size);
  if (block.slab != nullptr) {
    if (room > Sizes::kMaxSize || Sizes::size_of(Sizes::of(room)) != block.bytes) return nullptr;
  } else if (room < heap::kGrowable) {
    return nullptr;
  }
  if (!state.is_live() || !block.cell.replace(state, BlockState::busy())) return nullptr;
  std::atomic_thread_fence(std::memory_order_release);  // as in seal_found()
  if (keeps_place(block, block.requested(state), size)) return resize_large(block, state, size);
  return block.slab != nullptr ? resize_in_slab(block, state, size)
                               : resize_span(block, state, size);
}

}  // namespace allod::hardened
