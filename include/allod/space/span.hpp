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

// How much of a span its owner is going to touch, as far as that can be told.
enum class Filling : std::uint8_t {
  sparse,  // perhaps little of it
  dense,   // nearly all: worth a huge page
};
[[nodiscard]] inline Filling other_than(Filling filling) noexcept {
  return filling == Filling::dense ? Filling::sparse : Filling::dense;
}

struct PageSource;

// Address space obtained in one piece. Spans are cut from its front up to
// `used`; what lies behind has never been touched. Guarded by the space's lock.
struct Region {
  ListLinks<Region> links;
  Address base = 0;
  Slices size;
  Slices used;       // handed out so far
  Slices committed;  // readable and writable, at least `used`
  // Fresh spans of this kind come from here; huge pages were asked for in a dense one.
  Filling filling = Filling::sparse;
  // What is not usable yet is left out of core files.
  bool is_tail_hidden = false;
  // Up to here huge pages have been given up; see Space::avoid_huge_pages.
  Slices avoided;
  // Of the one heap that cuts spans from it; null: everybody does.
  PageSource* source = nullptr;
};
using RegionList = List<Region, &Region::links>;

// Guarded by the space's lock while free, by its owner while used. `links` then
// belong to the owner.
struct Span {
  Address base = 0;
  Slices size;
  SpanState state = SpanState::used;
  bool zero = false;                   // used: read as zero when it was handed out
  std::uint16_t descriptor_bytes = 0;  // used, with a larger descriptor: its size
  ListLinks<Span> links;
  ListLinks<Span> age_links;
  Region* region = nullptr;
  // Used, with a larger descriptor: where the span lives when it is free.
  // Nothing has to be allocated, then, in order to free it.
  Span* home = nullptr;
  std::uint32_t freed_ms = 0;
  // Used: parts of it may be closed by who has it, besides the guard; see note_closed().
  bool has_closed = false;
  // Used: parts of it may be mappings of their own that cannot be touched; see Space::shut().
  bool has_shut = false;
  // Used: clean memory from where huge pages are avoided, of which some would be huge.
  bool wants_huge = false;
  // Used: as far as the space knows. Whoever had it last keeps it for its next request.
  bool is_kept = false;
  // Of a block that is a span of its own and belongs to a first-class heap: that heap. Holds
  // anything else otherwise.
  void* heap = nullptr;
  // Of a block that is a span of its own, where the policy keeps states: its state, see
  // slab/block_state.hpp; in a hardened heap, what was asked for.
  std::uint64_t block_state = 0;
  // Used: from here to its end nothing can be touched; 0: all of it can.
  Address guarded_from = 0;
};

using SpanList = List<Span, &Span::links>;
using SpanAgeList = List<Span, &Span::age_links>;

[[nodiscard]] inline Address end_of(const Span& span) noexcept {
  return span.base + span.size.bytes();
}
// As far as it can be touched.
[[nodiscard]] inline Address open_end_of(const Span& span) noexcept {
  return span.guarded_from != 0 ? span.guarded_from : end_of(span);
}
// Some of it cannot be touched, which has to end before it serves somebody else.
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
