// Zeros for memory of which a part has no pages, because nobody has touched it.
//
// To fill such a part would give it pages, and even a look at it maps the system's page of zeros.
// So the system is asked first which pages are in memory, and only those are touched. What has been
// swapped out looks like what was never touched: it is given back, and reads as zero then.
#pragma once

#include "allod/heaps/sized_canary.hpp"
#include "allod/space/space.hpp"

namespace allod::heaps {

// Blocks from here on are asked about, in bytes. The questions of one life take as long as to touch
// one or two pages for the first time: they are not put again to a block that had all its pages
// (Slab::is_filled()).
inline constexpr std::size_t kAsked = std::size_t{8} << 10;
// Smaller ones with holes are asked about in their first life only. After that a look at all of
// them takes less time, and the page of zeros that it maps is no memory of theirs.
inline constexpr std::size_t kAskedAgain = std::size_t{64} << 10;

// May the memory of the span be asked about? What a program has given may be a file, whose pages
// hold something without being in memory; huge pages that were set aside cannot be given back.
[[nodiscard]] inline bool tells_pages(const space::Span& span) noexcept {
  const space::PageSource* const source = span.region->source;
  return source == nullptr || source->can_purge();
}

// Calls `visit(from, bytes)` for runs of pages of [from, from + bytes), which are whole pages, that
// are in memory, until it returns false. False when the system does not tell: those that were
// visited are in order of their addresses.
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

// Fills with zeros what is not zero: a page that is shared with a child of a fork, or is the
// system's page of zeros, would get memory of its own only to be the same as before. Pages are
// looked at to the first part that is not zero.
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
  Address dirty = words;  // from there on, up to where the loop is
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

// Gives whole pages back, or fills them with zeros. How many bytes are in memory?
template <class P>
std::size_t give_back(P& platform, Address from, std::size_t bytes) noexcept {
  void* const memory = reinterpret_cast<void*>(from);
  if (bytes == 0 || platform.purge(memory, bytes)) return 0;
  __builtin_memset(memory, 0, bytes);
  return bytes;
}

// Whole pages are zero from now on. Runs that are in memory are filled with zeros and stay, for to
// let them go and come anew takes many times as long. What lies between is given back; where there
// are many runs, so is the rest. How many bytes stay?
//
// A run at the start or the end stays however short it is: it takes no call, and of many a block
// nothing is used but the first page, and the canary.
template <class P>
std::size_t wipe(P& platform, Address from, std::size_t bytes) noexcept {
  constexpr std::size_t kGap = 8;    // a run may lack one page of so many, and few in a row
  constexpr std::size_t kShort = 4;  // pages that are not worth a call of the system
  constexpr int kMostRuns = 8;
  const std::size_t page = platform.page_size();
  const Address end = from + bytes;
  Address done = from;   // to here
  Address first = from;  // of the run that is being looked at
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

// Calls `use(from, bytes)` for the part before the whole pages of a range, then for that behind
// them, and `use_pages` for these.
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

// The range is zero from now on. Is all of it in memory?
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

// What becomes of pages that are not in memory, and may have been swapped out.
enum class Absent : bool { left, given_back };

// Is the range zero, as far as it is in memory? Where the rest is given back, it is zero from now
// on. Both numbers are multiples of 8.
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
