// One map from any address to its owner.
//
// Two flat arrays with an element for each slice of the address space: a tag,
// which the fast path of free compares with the caller's own, and the span that
// covers the slice. Both are reserved, not committed: where nothing is ours,
// the system's page of zeros answers "foreign". When the process has little
// address space, the arrays cover only a window of it.
#pragma once

#include <atomic>

#include "allod/os/platform.hpp"

namespace allod::space {

struct Span;

// A tag holds the owner in its upper 20 bits and 24 times the size class in its
// lower 12. A domain's own tag has class 0, so that `tag ^ own` is less than 24
// times the number of classes when, and only when, the slab is its own. It is
// then also the offset of the class in an array of 24-byte elements.
using Tag = std::uint32_t;
inline constexpr unsigned kOwnerShift = 12;
inline constexpr std::uint32_t kClassStride = 24;
inline constexpr std::uint32_t kMaxClasses = (1U << kOwnerShift) / kClassStride;
inline constexpr std::uint32_t kMaxOwner = 0xffff0;

[[nodiscard]] constexpr Tag make_tag(std::uint32_t owner, std::uint32_t size_class) noexcept {
  return (owner << kOwnerShift) | (size_class * kClassStride);
}
[[nodiscard]] constexpr std::uint32_t owner_of(Tag tag) noexcept { return tag >> kOwnerShift; }
[[nodiscard]] constexpr std::uint32_t class_stride_of(Tag tag) noexcept {
  return tag & ((1U << kOwnerShift) - 1);
}
[[nodiscard]] constexpr std::uint32_t class_of(Tag tag) noexcept {
  return class_stride_of(tag) / kClassStride;
}

// Owners from here on are first-class heaps, those before it are domains of threads.
inline constexpr std::uint32_t kFirstHeapOwner = 0x80000;
// Not a class: marks a block of a first-class heap that is a span of its own.
inline constexpr std::uint32_t kHugeClass = kMaxClasses - 1;
// Not a class: marks a slab of a first-class heap with blocks of all sizes.
inline constexpr std::uint32_t kMixedClass = kMaxClasses - 2;

// Owners that are not domains.
inline constexpr std::uint32_t kForeignOwner = 0;
inline constexpr std::uint32_t kOrphanOwner = 0xffffc;  // of a slab whose domain is gone
// Also the own tag of a thread without domain: it has no magazine for anything
// that it could mistake for its own.
inline constexpr Tag kForeignTag = 0;
inline constexpr Tag kFreeTag = make_tag(0xfffff, 0);      // in a free span
inline constexpr Tag kInteriorTag = make_tag(0xffffe, 0);  // not the first slice of its block
inline constexpr Tag kHugeTag = make_tag(0xffffd, 0);      // a block without class or domain

// Is it the tag of a slab, with or without a domain?
[[nodiscard]] constexpr bool is_slab(Tag tag) noexcept {
  const std::uint32_t owner = owner_of(tag);
  if (owner == kForeignOwner || class_of(tag) == kHugeClass) return false;
  return owner <= kMaxOwner || owner == kOrphanOwner;
}
// Is it the tag of a slab that a thread's domain owns, or a shared one?
[[nodiscard]] constexpr bool is_domains(Tag tag) noexcept {
  return tag - make_tag(kForeignOwner + 1, 0) < make_tag(kFirstHeapOwner - 1, 0);
}
// Is it the tag of a slab or of a block that a first-class heap owns?
[[nodiscard]] constexpr bool is_heaps(Tag tag) noexcept {
  const std::uint32_t owner = owner_of(tag);
  return owner >= kFirstHeapOwner && owner <= kMaxOwner;
}

class PageMap {
 public:
  constexpr PageMap() noexcept = default;
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // Reserves the arrays; not thread-safe, called once. False when the system
  // gives no addresses.
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool start(P& platform) noexcept;

  // Makes the elements for [first, first + bytes) writable. False when they lie
  // outside of the window or the system gives no memory. Thread-safe.
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool cover(P& platform, Address first, std::size_t bytes) noexcept;

  // Before the system reads all pages of the map, as for mlockall: it has a zero page for each of
  // them, six million, or a huge one for 512 at once. Thread-safe.
  template <os::Platform P>
  void expect_reads(P& platform) const noexcept {
    if (slices_ == 0) return;
    platform.prefer_huge(spans_, slices_ * sizeof(SpanCell));
    platform.prefer_huge(tags(), slices_ * sizeof(TagCell));
  }

  // Where the process has got a limit of `limit` bytes of addresses, of which the whole map takes
  // more than its share: gives up the map of all addresses but those around [lowest, highest),
  // which hold what it has, and of those that the system hands out next. What it has for elements
  // in there stays. Not when these are so far apart that it would gain little. While nobody uses
  // the map.
  template <os::Platform P>
  void narrow(P& platform, std::size_t limit, Address lowest, Address highest) noexcept;

  // The tag of any address whatsoever. Thread-safe, never faults.
  [[nodiscard]] ALLOD_INLINE Tag tag_of(Address address) const noexcept {
    const std::size_t slice = (address - base_) >> kSliceShift;
    if (__builtin_expect(slice >= slices_, 0)) return kForeignTag;
    return tags()[slice].load(std::memory_order_relaxed);
  }
  // The same for a fast path, without an addition: false for addresses outside of
  // the map, and for all addresses when the map is only a window. Another thread
  // may be starting the map: then it is false, or the map is there. (On arm64, where
  // that is not so, it is enough that libc allocates when it makes a thread.)
  [[nodiscard]] ALLOD_INLINE bool fast_tag_of(Address address, Tag* tag) const noexcept {
    return fast_tag_of(address, fast_slices_, tag);
  }
  // The same for who looks only up to a bound of its own: 0, or fast_slices().
  [[nodiscard]] ALLOD_INLINE bool fast_tag_of(Address address,
                                              const std::atomic<std::size_t>& bound,
                                              Tag* tag) const noexcept {
    const std::size_t slice = address >> kSliceShift;
    if (__builtin_expect(!is_below(slice, bound), 0)) return false;
    *tag = tags()[slice].load(std::memory_order_relaxed);
    return true;
  }
  // How many there are for the fast path: 0 before the map is started, and when it is a window.
  [[nodiscard]] ALLOD_INLINE const std::atomic<std::size_t>& fast_slices() const noexcept {
    return fast_slices_;
  }
  // The same, and the span of an address with a tag.
  [[nodiscard]] ALLOD_INLINE bool fast_find(Address address, Tag* tag, Span** span) const noexcept {
    const std::size_t slice = address >> kSliceShift;
    if (__builtin_expect(!is_below(slice, fast_slices_), 0)) return false;
    *tag = tags()[slice].load(std::memory_order_relaxed);
    *span = spans_[slice].load(std::memory_order_relaxed);
    return true;
  }
  // The span that covers `address`; null when that is foreign. For a free span,
  // right only at its first and last slice.
  [[nodiscard]] ALLOD_INLINE Span* span_of(Address address) const noexcept {
    const std::size_t slice = (address - base_) >> kSliceShift;
    if (__builtin_expect(slice >= slices_, 0)) return nullptr;
    return spans_[slice].load(std::memory_order_relaxed);
  }
  // For an address with a tag, in steps.
  [[nodiscard]] ALLOD_INLINE std::size_t slice_of(Address address) const noexcept {
    return (address - base_) >> kSliceShift;
  }
  [[nodiscard]] ALLOD_INLINE Span* span_in(std::size_t slice) const noexcept {
    return spans_[slice].load(std::memory_order_relaxed);
  }
  [[nodiscard]] ALLOD_INLINE bool is_tagged(std::size_t slice, Tag tag) const noexcept {
    return holds(tags()[slice], tag);
  }
  // The same for an address with a tag.
  [[nodiscard]] ALLOD_INLINE Span* span_at(Address address) const noexcept {
    return spans_[(address - base_) >> kSliceShift].load(std::memory_order_relaxed);
  }
  // The range must have been covered.
  void set_tags(Address first, Slices count, Tag tag) noexcept {
    const std::size_t slice = (first - base_) >> kSliceShift;
    for (std::size_t i = 0; i < count.count; ++i) {
      tags()[slice + i].store(tag, std::memory_order_relaxed);
    }
  }
  void set_spans(Address first, Slices count, Span* span) noexcept {
    const std::size_t slice = (first - base_) >> kSliceShift;
    for (std::size_t i = 0; i < count.count; ++i) {
      spans_[slice + i].store(span, std::memory_order_relaxed);
    }
  }
  void set_span(Address address, Span* span) noexcept { set_spans(address, {1}, span); }

  // Does the map itself lie there?
  [[nodiscard]] bool lies_at(Address address) const noexcept {
    return address - address_of(spans_) < slices_ * sizeof(SpanCell) ||
           address - address_of(tags()) < slices_ * sizeof(TagCell);
  }

 private:
  using TagCell = std::atomic<Tag>;
  using SpanCell = std::atomic<Span*>;
  static constexpr std::size_t kBytesPerSlice = sizeof(TagCell) + sizeof(SpanCell);
  // Slices of 1 GiB, whose elements become writable together. They take no memory yet.
  static constexpr std::size_t kGrain = std::size_t{1} << (30 - kSliceShift);

  template <os::Platform P>
  [[nodiscard]] static std::size_t bytes_for(std::size_t slices, P& platform) noexcept {
    return align_up(slices * kBytesPerSlice, platform.page_size());
  }
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool reserve(P& platform, Address base, std::size_t slices) noexcept;
  [[nodiscard]] ALLOD_INLINE TagCell* tags() const noexcept { return load_relaxed(tags_); }

  // The fast path reads these two before it knows that the map was started.
  std::atomic<std::size_t> fast_slices_ = 0;
  std::atomic<TagCell*> tags_ = nullptr;
  Address base_ = 0;
  std::size_t slices_ = 0;
  SpanCell* spans_ = nullptr;
};

template <os::Platform P>
bool PageMap::start(P& platform) noexcept {
  const std::size_t limit = platform.address_space_limit();
  const std::size_t everything = std::size_t{1} << kAddressBits;
  if (limit == 0 && reserve(platform, 0, everything >> kSliceShift)) return true;

  // Mappings are handed out downwards from one place, so a window that hangs
  // from there and is some times larger than the limit holds all of them.
  void* const probe = platform.reserve(kSliceBytes, kSliceBytes);
  if (probe == nullptr) return false;
  platform.unmap(probe, kSliceBytes);
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  const Address end = align_up(address_of(probe), kGiB) + kGiB;
  std::size_t window = limit == 0 ? 1024 * kGiB : 4 * kGiB;
  while (window < 4 * limit && window < everything) window *= 2;
  for (; window >= kGiB; window /= 2) {
    const Address base = end > window ? end - window : 0;
    if (reserve(platform, base, (end - base) >> kSliceShift)) return true;
  }
  return false;
}

template <os::Platform P>
bool PageMap::reserve(P& platform, Address base, std::size_t slices) noexcept {
  const std::size_t bytes = bytes_for(slices, platform);
  void* const memory = platform.reserve_zeros(bytes);
  if (memory == nullptr) return false;
  platform.name(memory, bytes, "allod: page map");
  spans_ = static_cast<SpanCell*>(memory);
  tags_.store(reinterpret_cast<TagCell*>(spans_ + slices), std::memory_order_relaxed);
  base_ = base;
  slices_ = slices;
  fast_slices_.store(base == 0 ? slices : 0, std::memory_order_release);
  return true;
}

// What is given up leaves a hole, in which the system places what is mapped next, so it belongs to
// the window; that goes on below as far as it costs a part of the limit, which may be lifted
// again.
template <os::Platform P>
void PageMap::narrow(P& platform, std::size_t limit, Address lowest, Address highest) noexcept {
  const std::size_t whole = bytes_for(slices_, platform);
  if (fast_slices_.load(std::memory_order_relaxed) == 0 || whole < limit / 8) return;
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  const Address map = address_of(spans_);
  lowest = lowest < map ? lowest : map;
  highest = highest > map + whole ? highest : map + whole;
  std::size_t room = limit / 32 / kBytesPerSlice << kSliceShift;
  room = room < 4 * kGiB ? 4 * kGiB : room;
  // Elements of both arrays that begin and end with a page.
  const std::size_t grain = platform.page_size() / sizeof(TagCell);
  const std::size_t first = align_down((lowest > room ? lowest - room : 0) >> kSliceShift, grain);
  std::size_t end = align_up((align_up(highest, kGiB) + kGiB) >> kSliceShift, grain);
  if (end > slices_) end = slices_;  // as without random addresses
  if ((end - first) * kBytesPerSlice > (limit < whole ? limit : whole) / 2) return;
  const auto give_up = [&](const auto* from, const auto* to) noexcept {
    const std::size_t bytes = address_of(to) - address_of(from);
    if (bytes != 0) platform.unmap(reinterpret_cast<void*>(address_of(from)), bytes);
  };
  TagCell* const all_tags = tags();
  give_up(spans_, spans_ + first);
  give_up(spans_ + end, all_tags + first);
  give_up(all_tags + end, reinterpret_cast<const TagCell*>(map + whole));
  fast_slices_.store(0, std::memory_order_relaxed);
  base_ = first << kSliceShift;
  slices_ = end - first;
  spans_ += first;
  tags_.store(all_tags + first, std::memory_order_relaxed);
}

template <os::Platform P>
bool PageMap::cover(P& platform, Address first, std::size_t bytes) noexcept {
  const std::size_t slice = (first - base_) >> kSliceShift;
  const std::size_t count = bytes >> kSliceShift;
  if (slice >= slices_ || count > slices_ - slice) return false;
  // In whole grains: what is writable for regions that are near each other is one mapping.
  const std::size_t first_slice = align_down(slice, kGrain);
  const std::size_t end = align_up(slice + count, kGrain);
  const auto writable = [&](auto* cells) noexcept {
    const Address from = align_down(address_of(cells + first_slice), platform.page_size());
    const Address to =
        align_up(address_of(cells + (end < slices_ ? end : slices_)), platform.page_size());
    return platform.commit(reinterpret_cast<void*>(from), to - from);
  };
  return writable(tags()) && writable(spans_);
}

}  // namespace allod::space
