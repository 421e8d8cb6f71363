// A map from any address to its owner.
//
// Two flat arrays with an element for each slice of the address space: a tag, which the fast path
// of free compares with the caller's own, and the span that covers the slice. Both are reserved,
// not committed: for foreign addresses, the system's page of zeros means "foreign". With little
// address space, the arrays cover only a window of it.
#pragma once

#include <atomic>

#include "allod/os/platform.hpp"

namespace allod::space {

struct Span;

// The upper 20 bits of a tag are the owner; the lower 12 are a stride times the size class: 24, or
// 12 with 32 bits. A domain's own tag has class 0. So `tag ^ own` is less than the stride times the
// number of classes if and only if the domain owns the slab. It is then the offset of the class in
// an array of elements of three pointers.
using Tag = std::uint32_t;
inline constexpr unsigned kOwnerShift = 12;
inline constexpr std::uint32_t kClassStride = 3 * sizeof(void*);
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

// Lower owners are domains, these and higher ones are first-class heaps.
inline constexpr std::uint32_t kFirstHeapOwner = 0x80000;
// Not a class: a block of a first-class heap that is a span of its own.
inline constexpr std::uint32_t kHugeClass = kMaxClasses - 1;
// Not a class: a slab of a first-class heap with blocks of all sizes.
inline constexpr std::uint32_t kMixedClass = kMaxClasses - 2;

// Owners that are not domains.
inline constexpr std::uint32_t kForeignOwner = 0;
inline constexpr std::uint32_t kOrphanOwner = 0xffffc;  // of a slab whose domain has ended
// Also the own tag of a thread without a domain, so that no slab looks like its own.
inline constexpr Tag kForeignTag = 0;
inline constexpr Tag kFreeTag = make_tag(0xfffff, 0);      // in a free span
inline constexpr Tag kInteriorTag = make_tag(0xffffe, 0);  // not the first slice of its block
inline constexpr Tag kHugeTag = make_tag(0xffffd, 0);      // a block without class or domain

// Whether it is the tag of a slab, with or without a domain.
[[nodiscard]] constexpr bool is_slab(Tag tag) noexcept {
  const std::uint32_t owner = owner_of(tag);
  if (owner == kForeignOwner || class_of(tag) == kHugeClass) return false;
  return owner <= kMaxOwner || owner == kOrphanOwner;
}
// Whether it is the tag of a domain's slab.
[[nodiscard]] constexpr bool is_domains(Tag tag) noexcept {
  return tag - make_tag(kForeignOwner + 1, 0) < make_tag(kFirstHeapOwner - 1, 0);
}
// Whether it is the tag of a slab or a block of a first-class heap.
[[nodiscard]] constexpr bool is_heaps(Tag tag) noexcept {
  const std::uint32_t owner = owner_of(tag);
  return owner >= kFirstHeapOwner && owner <= kMaxOwner;
}

class PageMap {
 public:
  constexpr PageMap() noexcept = default;
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // Reserves the arrays. Called once, not thread-safe. False if the system gives no addresses.
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool start(P& platform) noexcept;

  // Makes the elements for [first, first + bytes) writable, and spans a part of core files. False
  // if they are outside of the window, or the system gives no memory. Thread-safe.
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool cover(P& platform, Address first, std::size_t bytes) noexcept;

  // Before the system reads all pages of the map, as for mlockall. It then maps a zero page for
  // each, six million in all, or a huge one for 512 of them. Thread-safe.
  template <os::Platform P>
  void expect_reads(P& platform) const noexcept {
    for_each_part(
        [&](void* cells, std::size_t bytes) noexcept { platform.prefer_huge(cells, bytes); });
  }

  // For an address-space limit of `limit` bytes, of which the map would take more than its share:
  // unmaps elements of unused addresses, except for those that the system hands out next. Does
  // nothing if little would be gained. Not concurrent with cover() or narrow().
  //
  // Elements do not move. So a thread that has just seen the whole map finds the element that it is
  // about to read, if the address is in a mapping or a region.
  //
  //   each_region(keep)   calls keep(from, to) for all covered addresses
  //   each_mapping(keep)  calls it for all mappings of the process, once no thread begins to use
  //                       the whole map. Returns false if they are unknown. Then nothing changes,
  //                       unless no other thread can be reading (`is_alone`).
  template <os::Platform P, class Regions, class Mappings>
  void narrow(P& platform, std::size_t limit, bool is_alone, Regions&& each_region,
              Mappings&& each_mapping) noexcept;

  // The tag of any address. Thread-safe, never faults.
  [[nodiscard]] ALLOD_INLINE Tag tag_of(Address address) const noexcept {
    const std::size_t slice = (address - base_) >> kSliceShift;
    if (__builtin_expect(slice >= load_relaxed(slices_), 0)) return tag_in_parts(slice);
    return tags()[slice].load(std::memory_order_relaxed);
  }
  // The same for a fast path, without an addition. False for addresses outside of the map, and
  // always if the map is a window. If another thread is starting the map, it is false, or sees the
  // map. (On arm64, which does not order these, libc's allocation at the start of a thread
  // suffices.)
  [[nodiscard]] ALLOD_INLINE bool fast_tag_of(Address address, Tag* tag) const noexcept {
    return fast_tag_of(address, fast_slices_, tag);
  }
  // The same with a bound of the caller's: 0, or fast_slices().
  [[nodiscard]] ALLOD_INLINE bool fast_tag_of(Address address,
                                              const std::atomic<std::size_t>& bound,
                                              Tag* tag) const noexcept {
    const std::size_t slice = address >> kSliceShift;
    if (__builtin_expect(!is_below(slice, bound), 0)) return false;
    *tag = tags()[slice].load(std::memory_order_relaxed);
    return true;
  }
  // Slices for the fast path: 0 before start() and for a window.
  [[nodiscard]] ALLOD_INLINE const std::atomic<std::size_t>& fast_slices() const noexcept {
    return fast_slices_;
  }
  // The same with the span. For an address with a tag.
  [[nodiscard]] ALLOD_INLINE bool fast_find(Address address, Tag* tag, Span** span) const noexcept {
    const std::size_t slice = address >> kSliceShift;
    if (__builtin_expect(!is_below(slice, fast_slices_), 0)) return false;
    *tag = tags()[slice].load(std::memory_order_relaxed);
    *span = spans_[slice].load(std::memory_order_relaxed);
    return true;
  }
  // The span that covers `address`; null for a foreign address. For a free span, valid only at its
  // first and last slice.
  [[nodiscard]] ALLOD_INLINE Span* span_of(Address address) const noexcept {
    const std::size_t slice = (address - base_) >> kSliceShift;
    if (__builtin_expect(slice >= load_relaxed(slices_), 0)) return span_in_parts(slice);
    return spans_[slice].load(std::memory_order_relaxed);
  }
  // span_of() in steps, for an address with a tag.
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

  // Whether the address is in the map's own memory.
  [[nodiscard]] bool lies_at(Address address) const noexcept {
    const auto is_there = [&](std::size_t slice) noexcept {
      return slice < load_relaxed(slices_) || is_in_parts(slice);
    };
    return is_there((address - address_of(spans_)) / sizeof(SpanCell)) ||
           is_there((address - address_of(tags())) / sizeof(TagCell));
  }

 private:
  using TagCell = std::atomic<Tag>;
  using SpanCell = std::atomic<Span*>;
  static constexpr std::size_t kBytesPerSlice = sizeof(TagCell) + sizeof(SpanCell);
  // Of all addresses. With 32 bits, the map is small and always covers all of them.
  static constexpr std::size_t kAllSlices = std::size_t{1} << (kAddressBits - kSliceShift);
  static constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  // Slices of 1 GiB, whose elements become writable together. Untouched ones take no memory.
  static constexpr std::size_t kGrain = std::size_t{1} << (30 - kSliceShift);

  template <os::Platform P>
  [[nodiscard]] static std::size_t bytes_for(std::size_t slices, P& platform) noexcept {
    return align_up(slices * kBytesPerSlice, platform.page_size());
  }
  template <os::Platform P>
  [[nodiscard]] ALLOD_HOT bool reserve(P& platform, Address base, std::size_t slices) noexcept;
  template <os::Platform P>
  [[nodiscard]] ALLOD_COLD bool commit_hidden(P& platform, const os::Piece& pages) const noexcept;
  [[nodiscard]] ALLOD_INLINE TagCell* tags() const noexcept { return load_relaxed(tags_); }

  // For a narrowed map: a bit for each part tells whether its elements are mapped. The tags of a
  // part are a page.
  using Parts = std::atomic<Word>;
  [[nodiscard]] std::size_t part_count() const noexcept { return all_slices_ / part_slices_; }
  [[nodiscard]] static bool has(const Parts* parts, std::size_t part) noexcept {
    return (load_relaxed(parts[part / kWordBits]) >> (part % kWordBits) & 1) != 0;
  }
  // Pairs with narrow(): a thread that reads 0 slices finds the parts.
  [[nodiscard]] bool is_in_parts(std::size_t slice) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    const Parts* const parts = load_relaxed(parts_);
    return parts != nullptr && slice < all_slices_ && has(parts, slice / part_slices_);
  }
  [[nodiscard]] ALLOD_COLD Tag tag_in_parts(std::size_t slice) const noexcept {
    return is_in_parts(slice) ? load_relaxed(tags()[slice]) : kForeignTag;
  }
  [[nodiscard]] ALLOD_COLD Span* span_in_parts(std::size_t slice) const noexcept {
    return is_in_parts(slice) ? load_relaxed(spans_[slice]) : nullptr;
  }
  // Calls visit(cells, bytes) for the mapped parts of each array.
  template <class Visit>
  void for_each_part(Visit&& visit) const noexcept {
    if (const Parts* const parts = load_relaxed(parts_)) {
      return for_each_run([&](std::size_t part) noexcept { return has(parts, part); }, visit);
    }
    if (all_slices_ == 0) return;
    visit(static_cast<void*>(spans_), all_slices_ * sizeof(SpanCell));
    visit(static_cast<void*>(tags()), all_slices_ * sizeof(TagCell));
  }
  // The same for parts that `is_meant`, in as few calls as possible.
  template <class Meant, class Visit>
  void for_each_run(Meant&& is_meant, Visit&& visit) const noexcept {
    std::size_t from = 0;
    for (std::size_t part = 0; part <= part_count(); ++part) {
      if (part < part_count() && is_meant(part)) continue;
      if (const std::size_t count = (part - from) * part_slices_; count != 0) {
        visit(static_cast<void*>(spans_ + from * part_slices_), count * sizeof(SpanCell));
        visit(static_cast<void*>(tags() + from * part_slices_), count * sizeof(TagCell));
      }
      from = part + 1;
    }
  }

  // The fast path reads these two before it knows that the map was started.
  std::atomic<std::size_t> fast_slices_ = 0;
  std::atomic<TagCell*> tags_ = nullptr;
  Address base_ = 0;
  std::atomic<std::size_t> slices_ = 0;  // 0 if the map was narrowed
  SpanCell* spans_ = nullptr;
  std::atomic<Parts*> parts_ = nullptr;
  std::size_t all_slices_ = 0;
  std::size_t part_slices_ = 1;
};

template <os::Platform P>
bool PageMap::start(P& platform) noexcept {
  const std::uint64_t limit = kAddressesAbound ? platform.address_space_limit() : 0;
  if (limit == 0 && reserve(platform, 0, kAllSlices)) return true;
  if (!kAddressesAbound) return false;

  // Mappings are placed downwards from one address. So a window below it that is some times larger
  // than the limit holds all of them.
  void* const probe = platform.reserve(kSliceBytes, kSliceBytes);
  if (probe == nullptr) return false;
  platform.unmap(probe, kSliceBytes);
  constexpr std::uint64_t kEverything = std::uint64_t{1} << kAddressBits;
  const std::uint64_t end = align_up(std::uint64_t{address_of(probe)}, kGiB) + kGiB;
  std::uint64_t window = limit == 0 ? 1024 * kGiB : 4 * kGiB;
  while (window < 4 * limit && window < kEverything) window *= 2;
  for (; window >= kGiB; window /= 2) {
    const std::uint64_t base = end > window ? end - window : 0;
    const auto slices = static_cast<std::size_t>((end - base) >> kSliceShift);
    if (reserve(platform, static_cast<Address>(base), slices)) return true;
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
  all_slices_ = slices;
  part_slices_ = platform.page_size() / sizeof(TagCell);
  slices_.store(slices, std::memory_order_relaxed);
  fast_slices_.store(base == 0 ? slices : 0, std::memory_order_release);
  return true;
}

// Unmapped elements leave holes. The system places the next mappings in the hole of the map itself,
// so the elements for that hole stay. Those for addresses below it stay as well, up to a part of
// the limit, since the limit may be lifted again.
template <os::Platform P, class Regions, class Mappings>
void PageMap::narrow(P& platform, std::size_t limit, bool is_alone, Regions&& each_region,
                     Mappings&& each_mapping) noexcept {
  if (!kAddressesAbound || base_ != 0 || all_slices_ == 0) return;
  const std::size_t whole = bytes_for(all_slices_, platform);
  const std::size_t part_bytes = part_slices_ * kBytesPerSlice;
  Parts* const before = parts_.load(std::memory_order_relaxed);
  const auto was_there = [&](std::size_t part) noexcept {
    return before == nullptr || has(before, part);
  };
  std::size_t now = 0;
  for_each_part([&](void*, std::size_t bytes) noexcept { now += bytes; });
  if (now < limit / 8) return;

  const std::size_t bytes = align_up(part_count() / 8, platform.page_size());
  auto* const parts = static_cast<Parts*>(platform.map(bytes));
  if (parts == nullptr) return;
  std::size_t kept = 0;
  const auto keep = [&](Address from, Address to) noexcept {
    const std::size_t end = (to - 1) >> kSliceShift;
    for (std::size_t slice = from >> kSliceShift; slice <= end && slice < all_slices_;
         slice = align_down(slice, part_slices_) + part_slices_) {
      const std::size_t part = slice / part_slices_;
      if (has(parts, part) || !was_there(part)) continue;
      Parts& word = parts[part / kWordBits];
      word.store(load_relaxed(word) | bit(part % kWordBits), std::memory_order_relaxed);
      kept += part_bytes;
    }
  };
  std::uint64_t room = limit / 32 / kBytesPerSlice << kSliceShift;
  room = room < 4 * kGiB ? 4 * kGiB : room;
  const auto keep_with_room = [&](Address from, Address to) noexcept {
    keep(from > room ? static_cast<Address>(from - room) : 0, to);
  };
  each_region(keep);
  keep_with_room(address_of(spans_), address_of(spans_) + whole);
  if constexpr (requires { platform.stay_together(); }) platform.stay_together();
  if (void* const next = platform.reserve(kSliceBytes, kSliceBytes)) {
    platform.unmap(next, kSliceBytes);
    keep_with_room(address_of(next), address_of(next) + static_cast<Address>(kGiB));
  }
  if (kept > (limit < now ? limit : now) / 2) return platform.unmap(parts, bytes);

  const auto bound_lookups = [&](std::size_t slices) noexcept {
    slices_.store(slices, std::memory_order_release);
    fast_slices_.store(slices, std::memory_order_seq_cst);
  };
  parts_.store(parts, std::memory_order_release);
  bound_lookups(0);
  if (!each_mapping(keep) && !is_alone) {
    // The parts are not unmapped, since another thread may be reading them.
    parts_.store(before, std::memory_order_release);
    return bound_lookups(before == nullptr ? all_slices_ : 0);
  }
  for_each_run(
      [&](std::size_t part) noexcept { return was_there(part) && !has(parts, part); },
      [&](void* cells, std::size_t bytes_of_run) noexcept { platform.unmap(cells, bytes_of_run); });
}

template <os::Platform P>
bool PageMap::cover(P& platform, Address first, std::size_t bytes) noexcept {
  const std::size_t slice = (first - base_) >> kSliceShift;
  const std::size_t count = bytes >> kSliceShift;
  if (slice >= all_slices_ || count > all_slices_ - slice) return false;
  const bool is_narrowed = load_relaxed(slices_) == 0;
  if (is_narrowed) {
    for (std::size_t part = slice / part_slices_; part * part_slices_ < slice + count; ++part) {
      if (!has(load_relaxed(parts_), part)) return false;
    }
  }
  // In whole grains: the writable elements of nearby regions are one mapping. In a narrowed map,
  // the rest of a grain may be unmapped.
  const std::size_t grain = is_narrowed ? part_slices_ : kGrain;
  const std::size_t first_slice = align_down(slice, grain);
  const std::size_t end = align_up(slice + count, grain);
  const auto pages_of = [&](auto* cells) noexcept {
    const Address from = align_down(address_of(cells + first_slice), platform.page_size());
    const Address to =
        align_up(address_of(cells + (end < all_slices_ ? end : all_slices_)), platform.page_size());
    return os::Piece{reinterpret_cast<void*>(from), to - from};
  };
  const os::Piece tags = pages_of(this->tags());
  const os::Piece spans = pages_of(spans_);
  if (!platform.commit(tags.address, tags.bytes)) return false;
  if (!platform.commit(spans.address, spans.bytes)) return commit_hidden(platform, spans);
  // A debugger finds the records of all blocks by them. The tags follow from the records.
  platform.dump(spans.address, spans.bytes, true);
  return true;
}

// Beside elements that are in core files, others need a mapping for a moment. Without one, none is
// in core files.
template <os::Platform P>
bool PageMap::commit_hidden(P& platform, const os::Piece& pages) const noexcept {
  for_each_part(
      [&](void* cells, std::size_t bytes) noexcept { platform.dump(cells, bytes, false); });
  return platform.commit(pages.address, pages.bytes);
}

}  // namespace allod::space
