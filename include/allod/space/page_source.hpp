// Where the memory of one heap comes from that does not share everybody's regions.
#pragma once

#include "allod/space/span_bins.hpp"

namespace allod::space {

enum class Pages : std::uint8_t {
  usual,
  large,    // huge pages where the system has some to spare
  huge_2m,  // huge pages that were set aside, or none
  huge_1g,
};

// When the memory of free spans goes back to the system.
enum class Purging : std::uint8_t {
  as_process,  // after the delay, and above the budget, of the process
  at_once,
  never,
  after_delay,  // of its own, and no budget
};

// What a heap asks for.
struct PageWishes {
  Pages pages = Pages::usual;
  Purging purging = Purging::as_process;
  std::uint32_t delay_ms = 0;  // after_delay
  bool locked = false;
  std::uint64_t nodes = 0;  // one bit each; 0: any
  Address buffer = 0;       // memory of the program, instead of all that is above
  std::size_t buffer_bytes = 0;

  // Does the heap need regions of its own?
  [[nodiscard]] bool are_any() const noexcept {
    return buffer_bytes != 0 || pages != Pages::usual || purging != Purging::as_process || locked ||
           nodes != 0;
  }
};

// Regions from which one heap alone cuts its spans, and those of them that are free.
// Guarded by the space's lock; what the wishes say never changes.
struct PageSource {
  explicit PageSource(const PageWishes& what) noexcept : wishes{what} {}

  const PageWishes wishes;
  ListLinks<PageSource> links;  // in the space
  RegionList regions;
  std::size_t bytes = 0;  // in regions
  FewSpanBins dirty;
  FewSpanBins clean;
  bool closing = false;
  std::uint32_t purging = 0;  // spans on their way back to the system
  // With a delay of its own: dirty spans, freed last first, and the links in the list of the
  // sources that have some.
  SpanAgeList by_age;
  ListLinks<PageSource> delay_links;

  [[nodiscard]] bool is_buffer() const noexcept { return wishes.buffer_bytes != 0; }
  // Can the system take memory back, and give it again when it is touched?
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
