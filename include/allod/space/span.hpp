// A run of slices: a slab, one large block, or free.
#pragma once

#include "allod/base/base.hpp"

namespace allod::space {

enum class SpanState : std::uint8_t {
  used,
  dirty,     // free, its memory still present
  clean,     // free, reads as zero, without memory
  purging,   // free, on its way from dirty to clean
  metadata,  // bookkeeping, for good
};

// The expected use of a span's memory.
enum class Filling : std::uint8_t {
  sparse,  // perhaps little of it
  dense,   // nearly all: worth a huge page
};
[[nodiscard]] inline Filling other_than(Filling filling) noexcept {
  return filling == Filling::dense ? Filling::sparse : Filling::dense;
}

// Of the part that is cut off a span.
enum class Tail : bool { present, absent };

struct PageSource;
class Seams;

// Address space obtained in one piece. Spans are cut from its front up to `used`; the rest has
// never been touched. Guarded by the space's lock.
struct Region {
  ListLinks<Region> links;
  Address base = 0;
  Slices size;
  Slices used;       // handed out so far
  Slices committed;  // readable and writable, at least `used`
  // Of the fresh spans from here. A dense region has asked for huge pages.
  Filling filling = Filling::sparse;
  // Whether the unusable part is left out of core files.
  bool is_tail_hidden = false;
  // Huge pages are given up to here; see Space::avoid_huge_pages.
  Slices avoided;
  // Whether it was asked to have no huge pages from the start.
  bool avoids_huge = false;
  // Whose threads get its spans, and touch them first.
  Node node = 0;
  // The heap's source that alone cuts spans from it; null: shared.
  PageSource* source = nullptr;
  // Where pages moved to; null: nowhere.
  Seams* seams = nullptr;
};
using RegionList = List<Region, &Region::links>;

// While free, guarded by the space's lock; while used, by its owner, which may use `links`.
struct Span {
  Address base = 0;
  Slices size;
  SpanState state = SpanState::used;
  bool zero = false;                   // used: read as zero when it was handed out
  std::uint16_t descriptor_bytes = 0;  // used, with a larger descriptor: its size
  ListLinks<Span> links;
  ListLinks<Span> age_links;
  Region* region = nullptr;
  // Used, with a larger descriptor: the descriptor when free, so that a free needs no allocation.
  Span* home = nullptr;
  std::uint32_t freed_ms = 0;
  // Used: so much of it will probably be written; none: unknown. See Space::fill().
  Slices expected;
  // Used: from here on it had no memory when it was handed out; 0: unknown.
  Address absent_from = 0;
  // Used: parts besides the guard may be closed by the owner; see Space::note_closed().
  bool has_closed = false;
  // Used: parts may be inaccessible mappings of their own; see Space::shut().
  bool has_shut = false;
  // Used: clean memory in which huge pages were given up, of which some are wanted again.
  bool wants_huge = false;
  // Used, but only for the space: a domain keeps it for its next request.
  bool is_kept = false;
  // Used: has memory by a guess; see Space::fill().
  bool is_filled = false;
  // For a block of a first-class heap that is a span: its heap. Otherwise undefined.
  void* heap = nullptr;
  // For a block that is a span, if the policy keeps states: its state, see slab/block_state.hpp; in
  // a hardened heap, its requested size.
  std::uint64_t block_state = 0;
  // Used: inaccessible from here to its end; 0: accessible as a whole.
  Address guarded_from = 0;
};

// Addresses from `from` to before `to`.
struct Range {
  Address from = 0;
  Address to = 0;
};

using SpanList = List<Span, &Span::links>;
using SpanAgeList = List<Span, &Span::age_links>;

[[nodiscard]] inline Address end_of(const Span& span) noexcept {
  return span.base + span.size.bytes();
}
// The end of its accessible part.
[[nodiscard]] inline Address open_end_of(const Span& span) noexcept {
  return span.guarded_from != 0 ? span.guarded_from : end_of(span);
}
// Whether a part of it is inaccessible, and must be opened before its next use.
[[nodiscard]] inline bool is_partly_closed(const Span& span) noexcept {
  return span.guarded_from != 0 || __atomic_load_n(&span.has_closed, __ATOMIC_RELAXED) ||
         __atomic_load_n(&span.has_shut, __ATOMIC_RELAXED);
}
[[nodiscard]] inline bool is_guarded_at(const Span& span, Address at) noexcept {
  return span.guarded_from != 0 && at >= span.guarded_from && at < end_of(span);
}
[[nodiscard]] inline bool is_free(const Span& span) noexcept {
  return span.state == SpanState::dirty || span.state == SpanState::clean;
}

}  // namespace allod::space
