// The source of memory for a heap that does not share the regions of all others.
#pragma once

#include "allod/space/span_bins.hpp"

namespace allod::space {

enum class Pages : std::uint8_t {
  usual,
  large,    // huge pages if the system has some to spare
  huge_2m,  // reserved huge pages, or none
  huge_1g,
};

// When memory of free spans is purged.
enum class Purging : std::uint8_t {
  as_process,  // after the process's delay, and above its budget
  at_once,
  never,
  after_delay,  // after the source's own delay, without budget
};

// The wishes of a heap.
struct PageWishes {
  Pages pages = Pages::usual;
  Purging purging = Purging::as_process;
  std::uint32_t delay_ms = 0;  // after_delay
  bool locked = false;
  std::uint64_t nodes = 0;  // one bit each; 0: any
  Address buffer = 0;       // memory of the program, in place of the wishes above
  std::size_t buffer_bytes = 0;

  // Whether the heap needs a source of its own.
  [[nodiscard]] bool are_any() const noexcept {
    return buffer_bytes != 0 || pages != Pages::usual || purging != Purging::as_process || locked ||
           nodes != 0;
  }
};

// Regions from which one heap alone cuts its spans, and the free ones of these. Guarded by the
// space's lock; the wishes never change.
struct PageSource {
  explicit PageSource(const PageWishes& what) noexcept : wishes{what} {}

  const PageWishes wishes;
  ListLinks<PageSource> links;  // in the space
  RegionList regions;
  std::size_t bytes = 0;  // in regions
  FewSpanBins dirty;
  FewSpanBins clean;
  bool closing = false;
  std::uint32_t purging = 0;  // spans that are being purged
  // With a delay of its own: dirty spans, freed last first, and links in the list of sources with
  // such spans.
  SpanAgeList by_age;
  ListLinks<PageSource> delay_links;

  [[nodiscard]] bool is_buffer() const noexcept { return wishes.buffer_bytes != 0; }
  // Whether the system can purge the memory, and provide it again at a touch.
  [[nodiscard]] bool can_purge() const noexcept {
    return wishes.pages <= Pages::large && !wishes.locked && !is_buffer();
  }
  [[nodiscard]] bool ages() const noexcept {
    return can_purge() && wishes.purging == Purging::as_process;
  }
  [[nodiscard]] bool ages_alone() const noexcept {
    return can_purge() && wishes.purging == Purging::after_delay;
  }
  [[nodiscard]] bool purges_at_once() const noexcept {
    return can_purge() && wishes.purging == Purging::at_once && !closing;
  }
};
using PageSourceList = List<PageSource, &PageSource::links>;
using DelayedList = List<PageSource, &PageSource::delay_links>;

}  // namespace allod::space
