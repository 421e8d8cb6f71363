// The memory of the fake: which pages are mapped and how, where the next ones go, what the system
// was told of them, and how many the process may have.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "allod/base/base.hpp"
#include "real_pages.hpp"

namespace allod::os {

class FakeMemory {
 public:
  // Where the next mapping goes.
  enum class Placement : std::uint8_t {
    descending,  // the highest gap that is large enough, as Linux does it
    ascending,   // the lowest
    scattered,   // somewhere, chosen by a generator
  };
  enum class Pages : std::uint8_t {
    none,      // not mapped
    reserved,  // no access
    zeros,     // may be read
    usable,    // may be read and written
    guarded,   // was usable, and will be
    shut,      // the same, and keeps what it holds
  };

  constexpr FakeMemory() noexcept = default;
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // --- what a test says, before or after start() ------------------------------------------------

  void set_page_size(std::size_t bytes) noexcept { page_size_ = bytes; }
  // Told to whoever asks, and enforced on everything that is mapped; 0: none.
  void set_address_space_limit(std::size_t bytes) noexcept { address_limit_ = bytes; }
  // Of pages that are usable at the same time, as under strict overcommit; 0: none.
  void set_memory_limit(std::size_t bytes) noexcept { memory_limit_ = bytes; }
  void set_placement(Placement placement) noexcept { placement_ = placement; }
  // Bytes left free beside each new mapping, a multiple of the page size.
  void set_gap(std::size_t bytes) noexcept { gap_ = bytes; }
  // Mappings that the process may have, counted as Linux does; 0: any number. What needs more
  // fails, or does nothing.
  void set_mapping_limit(std::size_t count) noexcept { mapping_limit_ = count; }
  // The next mapping begins that many bytes into the arena, whatever the placement.
  void place_next_at(std::size_t offset) noexcept { next_offset_ = offset; }

  // --- what a test asks -------------------------------------------------------------------------

  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
  [[nodiscard]] std::size_t usable_bytes() const noexcept { return usable_bytes_; }
  // Addresses beside each other of which the same was said are one.
  [[nodiscard]] std::size_t mappings() { return count_mappings(state().segments, state().advice); }
  // Were huge pages asked for there, and not given up since?
  [[nodiscard]] bool is_huge_at(Address at) {
    return advice_at(state().advice, at).huge == Huge::preferred;
  }
  // Are there to be none?
  [[nodiscard]] bool avoids_huge_at(Address at) {
    return advice_at(state().advice, at).huge == Huge::avoided;
  }
  // May what the program said of pages that moved there still hold?
  [[nodiscard]] bool has_foreign_advice(const void* address) {
    return advice_at(state().advice, address_of(address)).is_foreign;
  }
  [[nodiscard]] bool is_left_out_of_dumps(const void* address) {
    return advice_at(state().advice, address_of(address)).is_hidden;
  }
  // First address of the arena, a multiple of 1 GiB, or of 64 MiB with 32 bits.
  [[nodiscard]] Address arena() noexcept { return state().base; }
  [[nodiscard]] static constexpr std::size_t arena_bytes() noexcept { return kArenaBytes; }
  [[nodiscard]] Pages pages_at(const void* address) noexcept {
    const auto found = segment_around(address_of(address));
    return found == state().segments.end() ? Pages::none : found->second.pages;
  }
  // Where pages moved to: each is a mapping of its own.
  [[nodiscard]] std::size_t moved_pieces() { return state().pieces.size(); }
  // Bytes of the range that are in memory. The range must be mapped, and its bounds multiples of
  // the page size of the machine that the test runs on.
  [[nodiscard]] [[gnu::noinline]] static std::size_t resident_bytes(const void* address,
                                                                    std::size_t bytes) {
    std::vector<unsigned char> pages(bytes / kRealPage);
    always_check(test::RealPages::look(address, bytes, pages.data()),
                 "a look at a range that is not mapped");
    std::size_t resident = 0;
    for (const unsigned char page : pages) resident += (page & 1U) != 0 ? kRealPage : 0;
    return resident;
  }

 protected:
  ~FakeMemory() {
    if (state_ == nullptr) return;
    test::RealPages::release(reinterpret_cast<void*>(state_->raw), kArenaBytes + kArenaAlignment);
    delete state_;
  }

  static constexpr std::size_t kRealPage = 4096;
  static constexpr std::size_t kArenaAlignment = std::size_t{1} << (kAddressesAbound ? 30 : 26);
  static constexpr std::size_t kArenaBytes = std::size_t{1} << (kAddressesAbound ? 37 : 30);
  static_assert(kArenaBytes > std::size_t{1} << (kAddressBits - kSliceShift + 4),
                "a full page map must leave room");

  enum class Huge : std::uint8_t { usual, preferred, avoided };
  struct Advice {
    Huge huge = Huge::usual;
    bool is_hidden = false;
    bool is_foreign = false;
    bool operator==(const Advice&) const = default;
  };
  using Advices = std::map<Address, Advice>;  // from there on; before the first, the usual
  struct Segment {
    Address end;
    Pages pages;
  };
  using Pieces = std::map<Address, Address>;    // from there to there; disjoint
  using Segments = std::map<Address, Segment>;  // disjoint; what is in none is not mapped
  struct State {
    Address raw = 0;
    Address base = 0;
    Segments segments;
    Advices advice;
    Pieces pieces;
  };

  // --- limits -----------------------------------------------------------------------------------

  [[nodiscard]] std::size_t address_limit() const noexcept { return address_limit_; }
  bool exceeds_limits(Pages pages, std::size_t bytes) const noexcept {
    return (address_limit_ != 0 && mapped_bytes_ + bytes > address_limit_) ||
           (pages == Pages::usable && memory_limit_ != 0 && usable_bytes_ + bytes > memory_limit_);
  }
  // May so many bytes more become usable?
  bool exceeds_memory(std::size_t bytes) const noexcept {
    return memory_limit_ != 0 && usable_bytes_ + bytes > memory_limit_;
  }
  // Is the process about to have all mappings that it may have?
  bool lacks_mappings() { return mapping_limit_ != 0 && mappings() + 3 > mapping_limit_; }
  bool fits_limit(void* address, std::size_t bytes, Pages pages) {
    if (mapping_limit_ == 0) return true;
    Segments changed = state().segments;
    assign(changed, address_of(address), address_of(address) + bytes, pages);
    return count_mappings(changed, state().advice) <= mapping_limit_;
  }
  bool set_pages_within_limit(void* address, std::size_t bytes, Pages pages) {
    if (!fits_limit(address, bytes, pages)) return false;
    set_pages(address, bytes, pages);
    return true;
  }

  // --- what the system was told
  // -------------------------------------------------------------------

  static Advice advice_at(const Advices& advices, Address at) {
    const auto after = advices.upper_bound(at);
    return after == advices.begin() ? Advice{} : std::prev(after)->second;
  }
  template <class Change>
  static void set_advice(Advices& advices, Address first, Address end, Change&& change) {
    advices.emplace(end, advice_at(advices, end));
    advices.emplace(first, advice_at(advices, first));
    for (auto at = advices.find(first); at->first < end; ++at) change(at->second);
    Advice before;
    for (auto at = advices.begin(); at != advices.end();) {
      const bool is_same = at->second == before;
      before = at->second;
      at = is_same ? advices.erase(at) : std::next(at);
    }
  }
  static std::size_t count_mappings(const Segments& segments, const Advices& advices) {
    std::size_t count = segments.size();
    for (const auto& [at, advice] : advices) {
      const auto after = segments.lower_bound(at);
      count += after != segments.begin() && std::prev(after)->second.end > at ? 1 : 0;
    }
    return count;
  }
  template <class Change>
  void set_advice_within_limit(void* address, std::size_t bytes, Change&& change) {
    State& s = state();
    Advices changed = s.advice;
    set_advice(changed, address_of(address), address_of(address) + bytes, change);
    const bool fits = mapping_limit_ == 0 || count_mappings(s.segments, changed) <= mapping_limit_;
    if (fits) s.advice = std::move(changed);
  }
  template <class Change>
  void change_advice(void* address, std::size_t bytes, Change&& change) {
    set_advice(state().advice, address_of(address), address_of(address) + bytes, change);
  }
  void forget_all_advice(void* address, std::size_t bytes) {
    change_advice(address, bytes, [](Advice& advice) { advice = {}; });
  }

  // --- pages ------------------------------------------------------------------------------------

  // 0 when there is no room.
  template <class Random>
  Address find_place(std::size_t bytes, std::size_t alignment, Random&& next_random) noexcept {
    if (bytes > kArenaBytes || alignment > kArenaAlignment) return 0;
    if (next_offset_ != kAnywhere) {
      const Address place = state().base + next_offset_;
      next_offset_ = kAnywhere;
      return is_free(place, bytes) && place % alignment == 0 ? place : 0;
    }
    if (placement_ == Placement::scattered) {
      for (int attempt = 0; attempt < 16; ++attempt) {
        const std::size_t offset = next_random() % (kArenaBytes - bytes + 1);
        const Address place = align_down(state().base + offset, alignment);
        if (is_free(place, bytes)) return place;
      }
    }
    return placement_ == Placement::ascending ? lowest_place(bytes, alignment)
                                              : highest_place(bytes, alignment);
  }
  Address highest_place(std::size_t bytes, std::size_t alignment) noexcept {
    State& s = state();
    Address top = s.base + kArenaBytes;
    for (auto next = s.segments.rbegin();; ++next) {
      const bool at_end = next == s.segments.rend();
      const Address bottom = at_end ? s.base : next->second.end;
      if (top - bottom >= bytes + gap_) {
        const Address place = align_down(top - gap_ - bytes, alignment);
        if (place >= bottom) return place;
      }
      if (at_end) return 0;
      top = next->first;
    }
  }
  Address lowest_place(std::size_t bytes, std::size_t alignment) noexcept {
    State& s = state();
    Address bottom = s.base;
    for (auto next = s.segments.begin();; ++next) {
      const bool at_end = next == s.segments.end();
      const Address top = at_end ? s.base + kArenaBytes : next->first;
      const Address place = align_up(bottom + gap_, alignment);
      if (place <= top && top - place >= bytes) return place;
      if (at_end) return 0;
      bottom = next->second.end;
    }
  }

  Segments::iterator segment_around(Address at) noexcept {
    Segments& segments = state().segments;
    auto after = segments.upper_bound(at);
    if (after == segments.begin()) return segments.end();
    --after;
    return at < after->second.end ? after : segments.end();
  }
  bool is_free(Address first, std::size_t bytes) noexcept {
    State& s = state();
    if (first < s.base || bytes > kArenaBytes || first - s.base > kArenaBytes - bytes) return false;
    const auto after = s.segments.lower_bound(first);
    const bool starts_free = segment_around(first) == s.segments.end();
    return starts_free && (after == s.segments.end() || after->first >= first + bytes);
  }
  template <class Condition>
  bool is_all(void* address, std::size_t bytes, Condition&& condition) noexcept {
    Address at = address_of(address);
    for (const Address end = at + bytes; at < end;) {
      const auto segment = segment_around(at);
      if (segment == state().segments.end()) return false;
      if (!condition(segment->second.pages)) return false;
      at = segment->second.end;
    }
    return true;
  }
  // Of a range that is mapped throughout.
  std::size_t bytes_that_are(Pages pages, void* address, std::size_t bytes) noexcept {
    std::size_t sum = 0;
    Address at = address_of(address);
    for (const Address end = at + bytes; at < end;) {
      const auto segment = segment_around(at);
      const Address stop = segment->second.end < end ? segment->second.end : end;
      if (segment->second.pages == pages) sum += stop - at;
      at = stop;
    }
    return sum;
  }
  static void split_segment(Segments& segments, Address at) noexcept {
    auto segment = segments.lower_bound(at);
    if (segment == segments.begin() || (--segment)->second.end <= at) return;
    const Segment tail = segment->second;
    segment->second.end = at;
    segments.emplace(at, tail);
  }
  static void assign(Segments& segments, Address first, Address end, Pages pages) noexcept {
    split_segment(segments, first);
    split_segment(segments, end);
    segments.erase(segments.lower_bound(first), segments.lower_bound(end));
    if (pages != Pages::none) merge(segments, segments.emplace(first, Segment{end, pages}).first);
  }
  void set_pages(void* address, std::size_t bytes, Pages pages) noexcept {
    const Address first = address_of(address);
    std::size_t usable_before = 0;
    std::size_t mapped_before = 0;
    split_segment(state().segments, first);
    for (auto it = state().segments.lower_bound(first);
         it != state().segments.end() && it->first < first + bytes; ++it) {
      const std::size_t length = std::min(it->second.end, first + bytes) - it->first;
      mapped_before += length;
      if (it->second.pages == Pages::usable) usable_before += length;
    }
    assign(state().segments, first, first + bytes, pages);
    mapped_bytes_ -= mapped_before;
    usable_bytes_ -= usable_before;
    if (usable_before != bytes || pages != Pages::usable) set_access(address, bytes, pages);
    if (pages != Pages::none) mapped_bytes_ += bytes;
    if (pages == Pages::usable) usable_bytes_ += bytes;
  }
  // They read as zero, and stay what they are.
  void clear_pages(void* address, std::size_t bytes) noexcept {
    const Address end = address_of(address) + bytes;
    for (Address at = address_of(address); at < end;) {
      const auto segment = segment_around(at);
      const Address stop = segment->second.end < end ? segment->second.end : end;
      always_check(test::RealPages::clear(reinterpret_cast<void*>(at), stop - at,
                                          access_to(segment->second.pages)),
                   "the fake cannot purge");
      at = stop;
    }
  }
  // Of memory that is the heap's.
  void change_pages(void* address, std::size_t bytes, Pages from, Pages to) noexcept {
    const Address end = address_of(address) + bytes;
    for (Address at = address_of(address); at < end;) {
      const auto segment = segment_around(at);
      always_check(segment != state().segments.end(), "pages that are not mapped");
      const Pages pages = segment->second.pages;
      always_check(pages == Pages::usable || pages == Pages::guarded || pages == Pages::shut,
                   "pages that are not the heap's");
      const Address stop = segment->second.end < end ? segment->second.end : end;
      if (pages == from) set_pages(reinterpret_cast<void*>(at), stop - at, to);
      at = stop;
    }
  }
  // Whether the range is within one piece, or touches none.
  bool is_one_piece(void* address, std::size_t bytes) noexcept {
    const Address first = address_of(address);
    const auto next = first_piece_behind(first);
    if (next == state().pieces.end() || next->first >= first + bytes) return true;
    return next->first <= first && next->second >= first + bytes;
  }
  void add_piece(void* address, std::size_t bytes) noexcept {
    state().pieces.emplace(address_of(address), address_of(address) + bytes);
  }
  // The range is no part of a piece any more.
  void forget_pieces(void* address, std::size_t bytes) noexcept {
    const Address first = address_of(address);
    const Address end = first + bytes;
    for (auto at = first_piece_behind(first); at != state().pieces.end() && at->first < end;) {
      const auto [from, to] = *at;
      at = state().pieces.erase(at);
      if (from < first) state().pieces.emplace(from, first);
      if (to > end) state().pieces.emplace(end, to);
    }
  }
  Pieces::iterator first_piece_behind(Address at) noexcept {
    Pieces& pieces = state().pieces;
    auto next = pieces.upper_bound(at);
    if (next != pieces.begin() && std::prev(next)->second > at) --next;
    return next;
  }
  // Adjacent segments that allow the same become one, as in the system's own list.
  static void merge(Segments& segments, Segments::iterator segment) noexcept {
    const auto joins = [&](Segments::iterator left, Segments::iterator right) {
      return left->second.end == right->first && left->second.pages == right->second.pages;
    };
    const auto next = std::next(segment);
    if (next != segments.end() && joins(segment, next)) {
      segment->second.end = next->second.end;
      segments.erase(next);
    }
    if (segment == segments.begin()) return;
    const auto previous = std::prev(segment);
    if (!joins(previous, segment)) return;
    previous->second.end = segment->second.end;
    segments.erase(segment);
  }
  static test::Access access_to(Pages pages) noexcept {
    return pages == Pages::usable  ? test::Access::write
           : pages == Pages::zeros ? test::Access::read
                                   : test::Access::none;
  }
  // Whoever maps these addresses next finds zeros.
  static void set_access(void* address, std::size_t bytes, Pages pages) noexcept {
    using test::RealPages;
    const bool done = pages == Pages::none ? RealPages::forget(address, bytes)
                                           : RealPages::allow(address, bytes, access_to(pages));
    always_check(done, "the system refuses what the fake allows");
  }

  std::size_t page_size_ = kRealPage;

 private:
  State& state() noexcept {
    if (state_ != nullptr) return *state_;
    state_ = new State;
    void* const raw = test::RealPages::reserve(kArenaBytes + kArenaAlignment);
    always_check(raw != nullptr, "no addresses for the fake's arena");
    state_->raw = address_of(raw);
    state_->base = align_up(state_->raw, kArenaAlignment);
    return *state_;
  }

  static constexpr std::size_t kAnywhere = ~std::size_t{0};

  std::size_t address_limit_ = 0;
  std::size_t memory_limit_ = 0;
  Placement placement_ = Placement::descending;
  std::size_t gap_ = 0;
  std::size_t mapping_limit_ = 0;
  std::size_t next_offset_ = kAnywhere;
  std::size_t mapped_bytes_ = 0;
  std::size_t usable_bytes_ = 0;
  // Apart, for the fake is constant-initialised.
  State* state_ = nullptr;
};

}  // namespace allod::os
