// malloc when the magazine is empty.
#pragma once

#include "allod/heap/engine.hpp"
#include "allod/slab/guarded_shape.hpp"

namespace allod::heap {

// A full slab of blocks up to this size has no untouched page.
inline constexpr std::size_t kTouchedBlock = 4096;

template <class Policy, class Above>
void* Engine<Policy, Above>::allocate(Domain& domain, std::size_t size, bool* zero) noexcept {
  if (__builtin_expect(!usable_, 0)) return nullptr;
  if (size > Sizes::kMaxSize) return allocate_huge(domain, size, {1}, zero);
  return refill(domain, Sizes::of(size), zero);
}

template <class Policy, class Above>
void* Engine<Policy, Above>::allocate_aligned(Domain& domain, std::size_t size,
                                              std::size_t alignment, bool* zero) noexcept {
  if (__builtin_expect(!usable_, 0)) return nullptr;
  if (alignment <= kSliceBytes) {
    const ClassIndex c = Sizes::of_aligned(size, alignment);
    if (c < kClasses) return allocate_class(domain, c, zero);
  }
  if (alignment > kMaxBlock) return nullptr;
  const Slices slices{static_cast<std::uint32_t>(alignment >> kSliceShift)};
  return allocate_huge(domain, size, slices.count > 1 ? slices : Slices{1}, zero);
}

// Allocates a span of its own, which belongs to no domain.
template <class Policy, class Above>
void* Engine<Policy, Above>::allocate_huge(Domain& domain, std::size_t size, Slices alignment,
                                           bool* zero) noexcept {
  if (size > kMaxBlock || is_interrupting()) return nullptr;
  const Slices slices = Slices::covering(size > 0 ? size : 1);
  if (slices.count > ~0U - alignment.count) return nullptr;
  if (void* const kept = take_kept(domain, slices, alignment, zero != nullptr)) return kept;
  space::Span* span = space_.allocate(slices, alignment);
  if (span == nullptr) {
    SlowPath slow{domain, gate_};
    give_up_everything(domain);
    span = space_.allocate(slices, alignment);
  }
  if (span == nullptr) return nullptr;
  void* const block = make_huge(span, space::kHugeTag);
  // After a loss, nothing moves any more.
  if (zero == nullptr && !fill(*span)) return allocate_huge(domain, size, alignment, zero);
  if (zero != nullptr) *zero = span->zero;
  populate(*span, false);
  maybe_purge();
  return block;
}

template <class Policy, class Above>
void* Engine<Policy, Above>::make_huge(space::Span* span, space::Tag tag) noexcept {
  space_.map().set_tags(span->base, span->size, space::kInteriorTag);
  space_.map().set_tags(span->base, {1}, tag);
  return reinterpret_cast<void*>(span->base);
}

template <class Policy, class Above>
ALLOD_INLINE bool Engine<Policy, Above>::can_reuse(const Front<Sizes>& front,
                                                   ClassIndex c) const noexcept {
  const std::uint32_t count = front.freed[c].count();
  if (count == 0) return false;
  if (!front.is_counting() || front.kind != FrontKind::domain) return true;
  return count >= worth_reuse(c);
}

template <class Policy, class Above>
ALLOD_INLINE std::uint32_t Engine<Policy, Above>::worth_reuse(ClassIndex c) const noexcept {
  const std::uint32_t half = (usual_capacity(c) + 1) / 2;
  return half > 0 ? half : 1;
}

template <class Policy, class Above>
ALLOD_INLINE void* Engine<Policy, Above>::take_one(Slab& slab, bool* virgin) noexcept {
  if constexpr (kShuffles) {
    const std::uint32_t all = slab.capacity();
    const unsigned choice = Policy::choice(all < Policy::kGroup ? all : Policy::kGroup);
    return slab.take_one_of(Policy::kGroup, choice, virgin);
  }
  return slab.take_one(virgin);
}
// The block to be handed out first comes last. Fewer than kGroup blocks cannot be shuffled well:
// each is chosen among its neighbours.
template <class Policy, class Above>
ALLOD_INLINE void Engine<Policy, Above>::take_some(Slab& slab, void** out,
                                                   std::uint32_t count) noexcept {
  if constexpr (kShuffles) {
    if (count < Policy::kGroup) {
      bool virgin;
      for (void** to = out + count; to != out;) *--to = take_one(slab, &virgin);
      return;
    }
  }
  slab.take(count, out);
  if constexpr (kShuffles) Policy::shuffle(out, count);
}

// Fills the magazine with the free blocks of one slab, lowest address on top.
template <class Policy, class Above>
ALLOD_NOINLINE void* Engine<Policy, Above>::refill(Domain& domain, ClassIndex c,
                                                   bool* zero) noexcept {
  if (__builtin_expect(!usable_, 0) || is_interrupting()) return nullptr;
  SlowPath slow{domain, gate_};
  look_around(domain);
  domain.bins()[c].ran_dry = true;
  std::uint32_t usual = 1;
  if (Sizes::size_of(c) >= kLargeBlock) {
    activate_large(domain, c);
  } else {
    usual = usual_capacity(c);
    widen_magazine(domain, domain.magazines[c], c, usual);
  }
  if (__builtin_expect(can_reuse(domain, c), 0)) {
    domain.reuse_freed(c, ~0U);
    return domain.magazines[c].pop();
  }
  Slab* slab = slab_with_free_block(domain, c);
  if (__builtin_expect(slab == nullptr, 0)) return nullptr;
  domain.counters.refills.add(1);

  Bin& bin = domain.bins()[c];
  Magazine& magazine = domain.magazines[c];
  // Empty, unless collecting remote blocks has just filled it.
  if (void* const block = magazine.pop()) return block;
  void* block;
  if (magazine.capacity() <= 1 || (zero != nullptr && slab->capacity() <= kWordBits)) {
    bool virgin;
    block = take_one(*slab, &virgin);
    if (zero != nullptr) *zero = slab->zero && virgin;
  } else {
    // Half of the room, so that the next frees do not flush at once.
    const std::uint32_t room = magazine.capacity() < usual ? magazine.capacity() : usual;
    const std::uint32_t wanted = (room + 1) / 2;
    std::uint32_t count = wanted < slab->free_count() ? wanted : slab->free_count();
    if (__builtin_expect(!kShuffles && slab->has_holes(), 0)) {
      slab = take_present(bin, magazine.bottom, &count);
    } else {
      take_some(*slab, magazine.bottom, count);
    }
    magazine.top = magazine.bottom + count;
    block = magazine.pop();
  }
  if (slab->is_full()) {
    slab->forget_holes();
    bin.partial.remove(slab);
    bin.full.push_front(slab);
  }
  return block;
}

// Takes up to `*count` blocks of the first partial slab that has some on present pages, and sets
// `*count` to their number. Slabs without such blocks go behind the others. If several in a row
// have none, the next one gives any.
template <class Policy, class Above>
Slab* Engine<Policy, Above>::take_present(Bin& bin, void** out, std::uint32_t* count) noexcept {
  const std::size_t page = space_.platform().page_size();
  Slab* slab = slab::as_slab(bin.partial.first());
  constexpr int kLooks = 8;
  for (int look = 0; look < kLooks && slab->has_holes(); ++look) {
    const std::uint32_t taken = slab->take_present(*count, page, out);
    if (taken != 0) {
      *count = taken;
      return slab;
    }
    bin.partial.remove(slab);
    bin.partial.push_back(slab);
    slab = slab::as_slab(bin.partial.first());
  }
  if (slab->free_count() < *count) *count = slab->free_count();
  take_some(*slab, out, *count);
  slab->note_holes_used();
  return slab;
}

template <class Policy, class Above>
Slab* Engine<Policy, Above>::slab_with_free_block(Domain& domain, ClassIndex c) noexcept {
  Bin& bin = domain.bins()[c];
  if (!bin.partial.empty()) return slab::as_slab(bin.partial.first());
  if (Slab* const adopted = adopt(domain, c)) return adopted;
  if (Slab* const fresh = new_slab(domain, c)) return fresh;
  give_up_everything(domain);
  if (!bin.partial.empty()) return slab::as_slab(bin.partial.first());
  Slab* const fresh = new_slab(domain, c);
  return fresh != nullptr || space_.nodes() <= 1 ? fresh : adopt(domain, c, true);
}

template <class Policy, class Above>
Slab* Engine<Policy, Above>::new_slab(Domain& domain, ClassIndex c) noexcept {
  put_aside(domain);
  Slab* const slab = fresh_slab(domain.bins()[c], c, &domain, domain.id());
  if (slab != nullptr) domain.counters.slabs_created.add(1);
  return slab;
}

// Whether the program will touch nearly all of a fresh slab (dense, for huge pages). Slabs of a
// class with many are full later. But blocks above a page may all be touched only in part, and a
// huge page would be resident as a whole. So several touched slabs in a row are needed. Later, one
// slab in many gets small pages and is checked again.
template <class Policy, class Above>
space::Filling Engine<Policy, Above>::filling_for(Bin& bin, ClassIndex c) noexcept {
  using space::Filling;
  constexpr std::uint32_t kMany = 2;
  constexpr std::uint32_t kEnough = 8;
  constexpr std::uint32_t kBeforeNextLook = 16;
  if (bin.slab_count < kMany) return Filling::sparse;
  const space::Span* const newest = bin.full.first();
  if (Sizes::size_of(c) <= kTouchedBlock || newest == nullptr) return Filling::dense;
  if (newest->region->source != nullptr) return Filling::dense;
  if (!space_.is_large_enough_for_huge_pages()) return Filling::sparse;
  if (newest->region->filling == Filling::sparse) {
    const std::size_t bytes = newest->size.bytes();
    void* const memory = reinterpret_cast<void*>(newest->base);
    const bool is_touched = space_.platform().present_bytes(memory, bytes) >= bytes - bytes / 8;
    const std::uint32_t touched = is_touched ? bin.touched + Sizes::shape_of(c).capacity : 0;
    const bool is_enough = touched >= kEnough;
    bin.touched = static_cast<std::uint8_t>(is_enough ? kEnough + kBeforeNextLook : touched);
  }
  if (bin.touched <= kEnough) return Filling::sparse;
  --bin.touched;
  return Filling::dense;
}

template <class Policy, class Above>
Slab* Engine<Policy, Above>::fresh_slab(Bin& bin, ClassIndex c, slab::Owner* owner,
                                        std::uint32_t id, space::PageSource* source,
                                        bool is_hardened) noexcept {
  const space::Filling filling = filling_for(bin, c);
  const std::size_t guard = space_.guard_bytes(filling, source, is_hardened);
  const sizes::SlabShape& whole = Sizes::shape_of(c);
  const sizes::SlabShape shape = guard != 0 ? slab::with_guard(whole, guard) : whole;
  std::size_t bytes = Slab::descriptor_bytes(shape);
  if constexpr (kBlockStates) bytes = slab::BlockStates::end_for(whole);
  space::Span* const span = space_.allocate_described({shape.slices}, filling, bytes, source);
  if (span == nullptr) return nullptr;
  Slab* const slab = slab::as_slab(span);
  if (guard != 0 && span->region->filling == space::Filling::sparse) {
    const std::size_t blocks = std::size_t{shape.capacity} * shape.block_bytes;
    space_.guard(*span, align_up(span->base + blocks, guard));
  }
  // In a class with many full slabs, the new one will be full as well.
  constexpr std::uint32_t kManyFull = 8;
  populate(*span, bin.slab_count >= kManyFull && shape.block_bytes <= kTouchedBlock);
  slab->start(shape, c, owner);
  if constexpr (kBlockStates) slab::BlockStates::start(*slab, whole);
  set_slab_tags(*slab, space::make_tag(id, c));
  bin.partial.push_front(slab);
  ++bin.slab_count;
  return slab;
}

// One call populates pages at less cost than a fault for each.
template <class Policy, class Above>
void Engine<Policy, Above>::populate(const space::Span& span, bool will_be_full) noexcept {
  if (!span.zero || options_.populate == Populate::off) return;
  if (options_.populate == Populate::adaptive && !will_be_full) return;
  // Huge pages come in one fault anyway. A heap with its own memory decides for itself.
  if (span.region->filling == space::Filling::dense || span.region->source != nullptr) return;
  space_.platform().populate(reinterpret_cast<void*>(span.base), open_end_of(span) - span.base);
}

// --- magazines ---------------------------------------------------------------

// The most blocks of a class that are taken from slabs in advance.
template <class Policy, class Above>
std::uint32_t Engine<Policy, Above>::usual_capacity(ClassIndex c) const noexcept {
  if (__builtin_expect(options_.magazine_bytes >= kUsualBytes, 1)) return kUsualCapacities[c];
  return capacity_for(c, options_.magazine_bytes, kUsualBlocks);
}

// The most blocks of a class that it keeps when they are freed, within burst_bytes. A large
// magazine serves the allocations after a burst of frees without a slab. shrink_magazines() returns
// unused blocks.
template <class Policy, class Above>
std::uint32_t Engine<Policy, Above>::max_capacity(ClassIndex c) const noexcept {
  return capacity_for(c, options_.magazine_bytes, kMostBlocks);
}

// Doubles the magazine of a class in use, up to `most` blocks. Half of the first one are the blocks
// of a cache line, so that threads that share the domain do not share lines.
template <class Policy, class Above>
void Engine<Policy, Above>::widen_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                           std::uint32_t most) noexcept {
  const std::uint32_t first = Sizes::size_of(c) < kCacheLine / 4 ? 15 : 7;
  const std::uint32_t capacity = magazine.capacity();
  if (capacity >= most) return;
  const std::uint32_t twice = capacity == 0 ? first : 2 * capacity + 1;
  const std::uint32_t next = twice < most ? twice : most;
  if (domain.burst_bytes + burst_bytes(c, next) - burst_bytes(c, capacity) > options_.burst_bytes) {
    return;
  }
  resize_magazine(domain, magazine, c, next);
}

// Lets the large class `c` keep one block. Takes the room from the classes activated first, as far
// as the bytes demand it.
template <class Policy, class Above>
void Engine<Policy, Above>::activate_large(Domain& domain, ClassIndex c) noexcept {
  if (domain.magazines[c].capacity() != 0) return;
  const std::size_t bytes = Sizes::size_of(c);
  while (domain.large_count > 0 && (domain.large_count == Domain::kLargeClasses ||
                                    domain.large_bytes + bytes > options_.large_cache_bytes)) {
    const ClassIndex oldest = domain.large[0];
    drop_magazine(domain, domain.magazines[oldest], oldest);
    drop_magazine(domain, domain.freed[oldest], oldest);
    domain.large_bytes -= Sizes::size_of(oldest);
    --domain.large_count;
    __builtin_memmove(domain.large, domain.large + 1, domain.large_count);
  }
  resize_magazine(domain, domain.magazines[c], c, 1);
  if (domain.magazines[c].capacity() == 0) return;
  domain.large[domain.large_count++] = static_cast<std::uint8_t>(c);
  domain.large_bytes += bytes;
}

template <class Policy, class Above>
void Engine<Policy, Above>::resize_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                            std::uint32_t capacity) noexcept {
  const std::size_t before = burst_bytes(c, magazine.capacity());
  replace_cells(domain, magazine, capacity);
  domain.burst_bytes += burst_bytes(c, magazine.capacity()) - before;
}

// Without metadata the magazine stays as it is. The cells are those of the domain's stock.
template <class Policy, class Above>
void Engine<Policy, Above>::replace_cells(Domain& domain, Magazine& magazine,
                                          std::uint32_t capacity) noexcept {
  auto* const cells = static_cast<void**>(
      domain.cells.take(space_.metadata(), space_.platform(), capacity * sizeof(void*)));
  if (cells == nullptr) return;
  const Magazine old = magazine;
  magazine.move_to(cells, capacity);
  if (old.capacity() == 0) return;
  domain.cells.put(space_.metadata(), old.bottom, old.capacity() * sizeof(void*));
}

}  // namespace allod::heap
