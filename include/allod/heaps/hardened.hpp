// Hardened heaps in a library that is not hardened.
//
// Such a heap leans to no thread, so that quick paths, which do not know about hardening, never
// apply. Free blocks are all zeros. A block in use has its requested size behind it. Freed blocks
// wait in a quarantine; their bits say that they are in use.
#pragma once

#include <errno.h>

#include "allod/heaps/heap.hpp"
#include "allod/heaps/present.hpp"

namespace allod::heaps {

// From this size on, blocks are neither filled with zeros nor checked: their pages are purged.
inline constexpr std::size_t kDiscarded = std::size_t{128} << 10;
// A waiting block without resident memory weighs this part of its size.
inline constexpr std::size_t kEmptyShare = 64;

template <class Policy>
bool Heap<Policy>::open_hardening(HeapDomain& heap) noexcept {
  void* const memory = space().allocate_metadata(sizeof(Hardening));
  if (memory == nullptr) return false;
  heap.hardening = new (memory) Hardening;
  heap.hardening->canary.start();
  heap.may_lean = false;
  return true;
}

// In a turn on the heap, unless a function takes one itself.
template <class Policy>
void Heap<Policy>::close_hardening(HeapDomain& heap) noexcept {
  if (heap.hardening == nullptr) return;
  space().metadata().free(heap.hardening, sizeof *heap.hardening);
  heap.hardening = nullptr;
}

// --- malloc ---------------------------------------------------------------------------

template <class Policy>
ALLOD_NOINLINE void* Heap<Policy>::take_hardened(HeapDomain& heap, HeapRequest& request) noexcept {
  const std::size_t size = request.size;
  if (size > kMaxBlock) return take_huge(heap, request);
  request.size = size + SizedCanary::kBytes;
  const ClassIndex c = class_for(request);
  void* block;
  if (c == kClasses) {
    const std::size_t guard = space().guard_bytes(space::Filling::sparse, heap.source, true);
    request.size += guard;
    block = take_huge(heap, request);
    if (block != nullptr) seal_huge(heap, block, size, guard);
  } else {
    Slab* slab = at_hand(heap, c);
    if (slab == nullptr) slab = look_for_slab(heap, c, request);
    block = slab == nullptr ? nullptr : take_at_random(heap, *slab, size);
    // Pages of larger blocks were purged, but not checked since.
    request.zero = block != nullptr && slab->block_bytes() < kDiscarded;
  }
  request.size = size;
  request.found = !heap.hardening->findings.empty();
  return block;
}

template <class Policy>
void* Heap<Policy>::take_at_random(HeapDomain& heap, Slab& slab, std::size_t size) noexcept {
  Hardening& hardening = *heap.hardening;
  void* const block = slab.take_at_random(hardening.random.word());
  check_unwritten(heap, slab, block);
  count_taken(heap, slab);
  hardening.canary.write(address_of(block), size, slab.block_bytes());
  return block;
}

// For a span of its own: records the requested size, and writes the canary behind it. From the next
// page on follows a guard of at least `guard` bytes, if not 0.
template <class Policy>
void Heap<Policy>::seal_huge(HeapDomain& heap, void* block, std::size_t size,
                             std::size_t guard) noexcept {
  space::Span& span = *space().map().span_of(address_of(block));
  span.block_state = size;
  heap.hardening->canary.write(span.base, size, sealed_bytes(size));
  if (guard != 0 && span.region->filling == space::Filling::sparse) {
    space().guard(span, align_up(span.base + sealed_bytes(size), guard));
  }
}

// Erases the content of a slab's earlier life.
template <class Policy>
void Heap<Policy>::clear_fresh(HeapDomain& heap, Slab& slab) noexcept {
  if (heap.hardening != nullptr && !slab.zero)
    clear(slab, slab.base, open_end_of(slab) - slab.base);
}

template <class Policy>
bool Heap<Policy>::clear(const space::Span& span, Address from, std::size_t bytes) noexcept {
  const Address end = from + bytes;
  if (bytes >= kDiscarded && span.region->source == nullptr) {
    const std::size_t page = space().platform().page_size();
    const Address first = align_up(from, page);
    const Address last = align_down(end, page);
    const os::Piece whole{reinterpret_cast<void*>(first), last - first};
    if (space().purge_within(*span.region, &whole, 1)) {
      __builtin_memset(reinterpret_cast<void*>(from), 0, first - from);
      __builtin_memset(reinterpret_cast<void*>(last), 0, end - last);
      return true;
    }
  }
  if (bytes >= kAsked && tells_pages(span)) {
    clear_present(space().platform(), from, bytes);
  } else {
    __builtin_memset(reinterpret_cast<void*>(from), 0, bytes);
  }
  return false;
}
// The same for a block.
template <class Policy>
bool Heap<Policy>::erase(Slab& slab, std::uint32_t index) noexcept {
  const Address block = address_of(slab.block_at(index));
  const std::size_t bytes = slab.block_bytes();
  if (bytes >= kDiscarded || bytes < kAsked || !tells_pages(slab)) return clear(slab, block, bytes);
  if (slab.is_filled(index)) {
    fill_with_zeros(block, bytes);
  } else if (clear_present(space().platform(), block, bytes)) {
    slab.note_filled(index);
  }
  return false;
}

// --- free -----------------------------------------------------------------------------

// Like release_in_turn().
template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::release_hardened(HeapDomain& heap, Slab& slab, void* address,
                                                   HeapRelease& outcome) noexcept {
  Hardening& hardening = *heap.hardening;
  const Address at = address_of(address);
  const std::uint32_t index = slab.index_of(at);
  if (index == Slab::kNoBlock || slab.is_marked_free(index)) return;
  const std::size_t bytes = slab.block_bytes();
  if (hardening.canary.read(at, bytes) == SizedCanary::kDamaged) {
    if (hardening.waiting.holds(address)) return;
    note(heap, slab, {.kind = MisuseKind::overflow, .block = address, .address = address});
  }
  outcome.given = true;
  check_block_before(heap, slab, index);
  heap.count_out(bytes, 1);
  const bool is_empty = erase(slab, index);
  const std::size_t held = heap.figures.held;
  const auto leave = [&](void* block) noexcept { end_waiting(heap, block); };
  const std::size_t weight = is_empty ? bytes / kEmptyShare : bytes;
  if (!hardening.waiting.take(address, weight, hardening.random, leave)) leave(address);
  outcome.retired = heap.figures.held != held;
  outcome.found = !hardening.findings.empty();
}

template <class Policy>
void Heap<Policy>::end_waiting(HeapDomain& heap, void* block) noexcept {
  Slab& slab = *slab::as_slab(space().map().span_of(address_of(block)));
  check_unwritten(heap, slab, block);
  if (slab.block_bytes() < kAskedAgain) slab.note_filled(slab.index_of(address_of(block)));
  const std::uint32_t free_before = slab.free_count();
  always_check(slab.give_one(block), "a block that waits is free");
  if (must_settle(slab, free_before)) settle_in_heap(heap, slab, free_before);
}

template <class Policy>
void Heap<Policy>::end_all_waiting(HeapDomain& heap) noexcept {
  if (heap.hardening == nullptr) return;
  const auto leave = [&](void* block) noexcept { end_waiting(heap, block); };
  heap.hardening->waiting.clear(heap.hardening->random, leave);
}

// Collects remote frees, which become free after their wait.
template <class Policy>
void Heap<Policy>::collect_hardened(HeapDomain& heap, Slab& slab, const void** doubled) noexcept {
  slab.take_marks([&](std::uint32_t index) noexcept {
    HeapRelease outcome;
    release_hardened(heap, slab, slab.block_at(index), outcome);
    if (!outcome.given) *doubled = slab.block_at(index);
  });
}

// --- checks ---------------------------------------------------------------------------

template <class Policy>
bool Heap<Policy>::is_unwritten(const Slab& slab, Address block) noexcept {
  const std::size_t bytes = slab.block_bytes();
  const bool asks = bytes >= kAsked && !slab.is_filled(slab.index_of(block)) && tells_pages(slab);
  return asks ? is_zero_if_present(space().platform(), block, bytes, Absent::given_back)
              : is_zero(block, bytes);
}
template <class Policy>
void Heap<Policy>::check_unwritten(HeapDomain& heap, const Slab& slab, void* block) noexcept {
  const std::size_t bytes = slab.block_bytes();
  if (bytes >= kDiscarded || is_unwritten(slab, address_of(block))) return;
  const auto* byte = static_cast<const unsigned char*>(block);
  while (*byte == 0) ++byte;
  note(heap, slab, {.kind = MisuseKind::write_after_free, .block = block, .address = byte});
  __builtin_memset(block, 0, bytes);
}

// For a span of its own, which does not wait.
template <class Policy>
bool Heap<Policy>::is_huge_intact(const HeapDomain& heap, const space::Span& span) noexcept {
  const auto size = static_cast<std::size_t>(span.block_state);
  return heap.hardening->canary.read(span.base, sealed_bytes(size)) == size;
}

// Without a turn.
template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::report_huge(const space::Span& span) const noexcept {
  Misuse misuse = describe(MisuseKind::overflow, reinterpret_cast<void*>(span.base));
  misuse.requested = static_cast<std::size_t>(span.block_state);
  misuse.state = slab::BlockState::live(slab::Origin::any, 0);
  Reporter::report(misuse);
}

// Checks for a write before a block, or past the end of a block that is never freed.
template <class Policy>
void Heap<Policy>::check_block_before(HeapDomain& heap, const Slab& slab,
                                      std::uint32_t index) noexcept {
  if (index == 0 || slab.is_marked_free(index - 1)) return;
  void* const before = slab.block_at(index - 1);
  const std::size_t bytes = slab.block_bytes();
  if (heap.hardening->canary.read(address_of(before), bytes) != SizedCanary::kDamaged) return;
  // A remote free that was not collected yet still has its canary.
  if (heap.hardening->waiting.holds(before)) return;
  note(heap, slab, {.kind = MisuseKind::overflow, .block = before, .address = before});
}

template <class Policy>
void Heap<Policy>::note(HeapDomain& heap, const Slab& slab, Finding finding) noexcept {
  finding.block_bytes = slab.block_bytes();
  heap.hardening->findings.add(finding);
}

// Without a turn, and before the heap ends, since reports name the heap.
template <class Policy>
void Heap<Policy>::tell_findings(HeapDomain& heap) noexcept {
  Findings findings;
  {
    HeapTurn turn{heap, gate()};
    if (heap.hardening == nullptr) return;
    findings = heap.hardening->findings;
    heap.hardening->findings = {};
  }
  findings.for_each([&](const Finding& finding) noexcept {
    Misuse misuse = describe(finding.kind, finding.block);
    // The slab may have been freed with its last block.
    const bool is_same = misuse.block == finding.block && misuse.owner == heap.id();
    if (!is_same) misuse = {.kind = finding.kind, .address = finding.address};
    misuse.address = finding.address;
    misuse.block = finding.block;
    misuse.block_bytes = finding.block_bytes;
    misuse.owner = heap.id();
    Reporter::report(misuse);
  });
}

// Before the heap ends: empties the quarantine, and reports all findings.
template <class Policy>
void Heap<Policy>::settle_hardening(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  {
    HeapTurn turn{heap, gate()};
    if (heap.hardening == nullptr) return;
    collect_in_heap(heap, &doubled);
    end_all_waiting(heap);
  }
  tell_findings(heap);
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
}

// --- questions ------------------------------------------------------------------------

// The requested size of a block in a hardened heap. SizedCanary::kDamaged if it is free or has an
// overflow.
template <class Policy>
std::size_t Heap<Policy>::sealed_size(const HeapDomain& heap, const Misuse& block) const noexcept {
  const Address at = address_of(block.block);
  const space::Span& span = *space().map().span_of(at);
  return heap.hardening->canary.read(at, canary_end(span, block.block_bytes));
}

// Whether it is free, and so all zeros. Checks every byte: if zeros were written past the end of a
// block in use, the block itself mostly has other bytes. Spans of their own do not wait.
[[nodiscard]] inline bool is_erased(const space::Span& span, Address block,
                                    std::size_t bytes) noexcept {
  return span.home != nullptr && is_zero(block, bytes);
}

// Whether it is a block of no bytes in use, intact or with an overflow.
template <class Policy>
bool Heap<Policy>::is_sealed_nothing(const HeapDomain& heap, const Misuse& block) const noexcept {
  const std::size_t size = sealed_size(heap, block);
  if (size != SizedCanary::kDamaged) return size == 0;
  // The canary was all of it.
  return block.block_bytes == SizedCanary::kBytes &&
         !is_zero(address_of(block.block), block.block_bytes);
}

// The bytes that the program may use; 0 if it is free.
template <class Policy>
std::size_t Heap<Policy>::hardened_size(const HeapDomain& heap,
                                        const Misuse& block) const noexcept {
  const std::size_t size = sealed_size(heap, block);
  if (size != SizedCanary::kDamaged) return size;
  const Address at = address_of(block.block);
  const space::Span& span = *space().map().span_of(at);
  const std::size_t end = canary_end(span, block.block_bytes);
  if (is_erased(span, at, end)) return 0;
  Reporter::report(describe(MisuseKind::overflow, block.block));
  return end - SizedCanary::kBytes;
}

// Reads memory that another thread may be purging or guarding: by a copy that the system makes. If
// the system refuses that, directly, with a fault if the memory has gone.
template <class P>
class Peek {
 public:
  static constexpr std::size_t kMost = 1024;

  // Where up to kMost bytes can be read until the next call; 0 if they have gone.
  [[nodiscard]] Address operator()(Address from, std::size_t bytes) noexcept {
    if (from >= from_ && from + bytes <= from_ + bytes_) return address_of(copy_) + (from - from_);
    const int error = P::peek(copy_, from, bytes);
    from_ = from;
    bytes_ = error == 0 ? bytes : 0;
    if (error == EFAULT) return 0;
    return error == 0 ? address_of(copy_) : from;
  }
  // Memory that has gone counts as zero.
  [[nodiscard]] bool is_all_zero(Address from, std::size_t bytes) noexcept {
    for (const Address end = from + bytes; from != end;) {
      const std::size_t piece = end - from < kMost ? end - from : kMost;
      const Address at = (*this)(from, piece);
      if (at == 0) return true;
      if (!is_zero(at, piece)) return false;
      from += piece;
    }
    return true;
  }

 private:
  Address from_ = 0;
  std::size_t bytes_ = 0;  // copied
  alignas(16) unsigned char copy_[kMost];
};

// For a block with these bounds, in a span with this tag: its requested size if its heap is
// hardened. Any thread may be freeing the block, the span and the heap. Does not report damage.
template <class Policy>
Bounds Heap<Policy>::sealed_bounds(const space::Span& span, space::Tag tag,
                                   const Bounds& whole) const noexcept {
  const bool is_huge = space::class_of(tag) == space::kHugeClass;
  const auto asked = static_cast<std::size_t>(span.block_state);
  const auto* const heap =
      is_huge ? static_cast<const HeapDomain*>(span.heap)
              : static_cast<const HeapDomain*>(static_cast<const Slab&>(span).owner());
  // See heap_of().
  if (heap == nullptr || space().map().tag_of(span.base) != tag) return whole;
  const Hardening* const hardening = heap->hardening;
  if (hardening == nullptr) return whole;
  if (is_huge) return {whole.start, asked < whole.bytes ? asked : whole.bytes};
  const Address at = address_of(whole.start);
  Peek<Platform> peek;
  // One call mostly reads all that is needed.
  constexpr std::size_t kEnd = SizedCanary::kMostFilled + SizedCanary::kBytes;
  const std::size_t end = whole.bytes < kEnd ? whole.bytes : kEnd;
  if (peek(at + whole.bytes - end, end) == 0) return {};
  const std::size_t size = hardening->canary.read(at, whole.bytes, peek);
  if (size != SizedCanary::kDamaged) return {whole.start, size};
  if (peek.is_all_zero(at, whole.bytes)) return {};
  return {whole.start, whole.bytes - SizedCanary::kBytes};
}

// Without a turn: the usable bytes of a block of `step` bytes that was in use a moment ago. False
// if it is free by now.
template <class Policy>
bool Heap<Policy>::read_sealed(HeapDomain& heap, const void* block, std::size_t step,
                               std::size_t* bytes) noexcept {
  HeapTurn turn{heap, gate()};
  if (!is_owned_by(heap, block)) return false;
  const space::Span& span = *space().map().span_of(address_of(block));
  if (span.home == nullptr) return false;
  const Slab& slab = static_cast<const Slab&>(span);
  const std::uint32_t index = slab.index_of(address_of(block));
  if (index == Slab::kNoBlock || slab.block_bytes() != step || slab.is_marked_free(index) ||
      slab.is_marked_remote(index) || heap.hardening->waiting.holds(block)) {
    return false;
  }
  const std::size_t size = heap.hardening->canary.read(address_of(block), step);
  *bytes = size != SizedCanary::kDamaged ? size : step - SizedCanary::kBytes;
  return true;
}

// Removes waiting blocks from the bits of a slab's blocks in use.
template <class Policy>
void Heap<Policy>::hide_waiting(HeapDomain& heap, const Slab& slab, Word* used) noexcept {
  heap.hardening->waiting.for_each([&](void* block) noexcept {
    if (space().map().span_of(address_of(block)) != &slab) return;
    const std::uint32_t index = slab.index_of(address_of(block));
    used[index / kWordBits] &= ~bit(index % kWordBits);
  });
}

}  // namespace allod::heaps
