// Zeros for memory that is present only in part.
//
// Writing zeros to absent pages would make them present, and even a read maps the system's page of
// zeros. So the system tells which pages are present, and only these are touched. Swapped-out pages
// look like untouched ones: they are purged, and then read as zero.
#pragma once

#include "allod/heaps/sized_canary.hpp"
#include "allod/space/space.hpp"

namespace allod::heaps {

// For blocks of at least this many bytes, the system is asked. Its answers take as long as one or
// two first touches of a page. They are not needed for a block whose pages are all present
// (Slab::is_filled()).
inline constexpr std::size_t kAsked = std::size_t{8} << 10;
// For smaller blocks with holes, the system is asked in their first life only. Later, reading all
// of them takes less time, and the mapped page of zeros is not their memory.
inline constexpr std::size_t kAskedAgain = std::size_t{64} << 10;

// Whether absent pages of the span are zero and present ones can be purged. The program's memory
// may be a file, whose absent pages have content; reserved huge pages cannot be purged.
[[nodiscard]] inline bool tells_pages(const space::Span& span) noexcept {
  const space::PageSource* const source = span.region->source;
  return source == nullptr || source->can_purge();
}

// Calls `visit(from, bytes)` for runs of present pages in the range, which is whole pages, in order
// of addresses, until it returns false. False if the system does not tell; some runs may have been
// visited then.
template <class P, class Visit>
[[nodiscard]] bool for_each_present(P& platform, Address from, std::size_t bytes,
                                    Visit&& visit) noexcept {
  constexpr std::size_t kReach = std::size_t{4} << 20;
  const std::size_t page = platform.page_size();
  const Address end = from + bytes;
  for (Address at = from; at < end; at += kReach) {
    unsigned char seen[kReach / 4096];
    const std::size_t reach = end - at < kReach ? end - at : kReach;
    if (!platform.look(reinterpret_cast<void*>(at), reach, seen)) return false;
    const std::size_t count = reach / page;
    for (std::size_t i = 0; i < count;) {
      const std::size_t first = i;
      // The system has written them.
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      while (i < count && (seen[i] & 1U) != 0) ++i;
      if (i != first && !visit(at + first * page, (i - first) * page)) return true;
      if (i == first) ++i;
    }
  }
  return true;
}

// Writes zeros only where other bytes are: otherwise a page shared with the child of a fork, or the
// system's page of zeros, would be copied for nothing. Reads each page up to its first part that is
// not zero.
[[gnu::noinline]] inline void fill_with_zeros(Address from, std::size_t bytes) noexcept {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kPart = 256;
  const auto is_page_zero = [](Address at, Address end) noexcept {
    for (; end - at > kPart; at += kPart) {
      if (!is_zero(at, kPart)) return false;
    }
    return is_zero(at, end - at);
  };
  const auto fill = [](Address at, Address end) noexcept {
    if (at < end) __builtin_memset(reinterpret_cast<void*>(at), 0, end - at);
  };
  const Address words = align_up(from, sizeof(std::uint64_t));
  const Address end = align_down(from + bytes, sizeof(std::uint64_t));
  if (words >= end) return fill(from, from + bytes);
  fill(from, words);
  fill(end, from + bytes);
  Address dirty = words;  // the part from here to `at` is not zero
  for (Address at = words; at < end;) {
    const Address next = align_up(at + 1, kPage) < end ? align_up(at + 1, kPage) : end;
    if (is_page_zero(at, next)) {
      fill(dirty, at);
      dirty = next;
    }
    at = next;
  }
  fill(dirty, end);
}

// Purges whole pages, or writes zeros. Returns the bytes that stay resident.
template <class P>
std::size_t give_back(P& platform, Address from, std::size_t bytes) noexcept {
  void* const memory = reinterpret_cast<void*>(from);
  if (bytes == 0 || platform.purge(memory, bytes)) return 0;
  __builtin_memset(memory, 0, bytes);
  return bytes;
}

// Zeroes whole pages, and returns the bytes that stay resident. Runs of present pages get zeros and
// stay, since a purge and new faults would take many times as long. Pages between them are purged.
// After many runs, the rest is purged as well.
//
// A run at the start or the end stays however short: it takes no call, and many blocks use only
// their first page and the canary.
template <class P>
std::size_t wipe(P& platform, Address from, std::size_t bytes) noexcept {
  constexpr std::size_t kGap = 8;    // a run may lack 1 page in 8, and few in a row
  constexpr std::size_t kShort = 4;  // pages not worth a system call
  constexpr int kMostRuns = 8;
  const std::size_t page = platform.page_size();
  const Address end = from + bytes;
  Address done = from;   // end of the part that is done
  Address first = from;  // of the current run
  Address last = from;
  std::size_t kept = 0;
  const auto end_run = [&]() noexcept {
    const bool is_inside = first > done && last < end;
    if (last == first || (is_inside && last - first < kShort * page)) return false;
    kept += give_back(platform, done, first - done) + (last - first);
    fill_with_zeros(first, last - first);
    done = last;
    return true;
  };
  int runs = 0;
  const auto add = [&](Address run, std::size_t length) noexcept {
    const std::size_t gap = (last - first) / kGap;
    if (run - last > (gap < kShort * page ? gap : kShort * page)) {
      runs += end_run() ? 1 : 0;
      first = run;
    }
    last = run + length;
    return runs < kMostRuns;
  };
  static_cast<void>(for_each_present(platform, from, bytes, add));
  end_run();
  return kept + give_back(platform, done, end - done);
}

// Calls `use(from, bytes)` for the part of the range before its whole pages and for the part behind
// them, and `use_pages` for the whole pages.
template <class P, class Use, class UsePages>
void for_pages_within(P& platform, Address from, std::size_t bytes, Use&& use,
                      UsePages&& use_pages) noexcept {
  const Address end = from + bytes;
  const Address first = align_up(from, platform.page_size());
  const Address last = align_down(end, platform.page_size());
  if (first >= last) return use(from, bytes);
  if (first != from) use(from, first - from);
  if (last != end) use(last, end - last);
  use_pages(first, last - first);
}

// Zeroes the range. Returns whether all of it is present.
template <class P>
[[gnu::noinline]] bool clear_present(P& platform, Address from, std::size_t bytes) noexcept {
  bool is_whole = true;
  for_pages_within(
      platform, from, bytes,
      [](Address part, std::size_t length) noexcept { fill_with_zeros(part, length); },
      [&](Address pages, std::size_t length) noexcept {
        is_whole = wipe(platform, pages, length) == length;
      });
  return is_whole;
}

// The treatment of absent pages, which may have been swapped out.
enum class Absent : bool { left, given_back };

// Whether the present part of the range is zero. Absent pages are purged with Absent::given_back,
// and then zero as well. Both numbers are multiples of 8.
template <class P>
[[nodiscard, gnu::noinline]] bool is_zero_if_present(P& platform, Address from, std::size_t bytes,
                                                     Absent absent) noexcept {
  bool is_clear = true;
  const auto look = [&](Address part, std::size_t length) noexcept {
    is_clear = is_clear && is_zero(part, length);
  };
  const auto pass_over = [&](Address part, std::size_t length) noexcept {
    if (absent == Absent::given_back && is_clear) give_back(platform, part, length);
  };
  for_pages_within(platform, from, bytes, look, [&](Address pages, std::size_t length) noexcept {
    Address done = pages;
    const auto look_at_run = [&](Address run, std::size_t run_bytes) noexcept {
      look(run, run_bytes);
      pass_over(done, run - done);
      done = run + run_bytes;
      return is_clear;
    };
    const bool is_told = for_each_present(platform, pages, length, look_at_run);
    if (!is_told) return look(done, pages + length - done);
    pass_over(done, pages + length - done);
  });
  return is_clear;
}

}  // namespace allod::heaps
