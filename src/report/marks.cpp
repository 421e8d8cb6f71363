#include "report/marks.hpp"

#include <string.h>

#include <algorithm>

#include "allod/heaps/present.hpp"
#include "guards/guards.hpp"
#include "report/tracker.hpp"

namespace allod::marks {

namespace {

// Neither is a letter, nor zero, which off-by-one writes often store.
constexpr unsigned char kBehind = 0xfd;
constexpr unsigned char kFreed = 0xdd;
// Marks only the start of the room behind a large block, so as not to touch all its pages.
constexpr std::size_t kMostBehind = 4096;
// Larger blocks skip the queue.
constexpr std::size_t kLargestWaiting = std::size_t{256} << 10;

[[nodiscard]] std::size_t marked_behind(const Extent& block) noexcept {
  return std::min(block.room - block.requested, kMostBehind);
}

// The first changed byte, or null.
[[nodiscard]] const unsigned char* find_change(const void* from, std::size_t bytes,
                                               unsigned char mark) noexcept {
  const auto* const begin = static_cast<const unsigned char*>(from);
  const auto* const end = begin + bytes;
  // Usually nothing has changed, and memcmp compares many bytes at a time.
  if (bytes == 0 || (*begin == mark && memcmp(begin, begin + 1, bytes - 1) == 0)) return nullptr;
  const auto* const found =
      std::find_if(begin, end, [mark](unsigned char byte) { return byte != mark; });
  return found == end ? nullptr : found;
}
[[nodiscard]] const unsigned char* find_change_behind(const void* block,
                                                      const Extent& extent) noexcept {
  const auto* const end = static_cast<const unsigned char*>(block) + extent.requested;
  return find_change(end, marked_behind(extent), kBehind);
}

void mark_end(void* block, const Extent& extent) noexcept {
  memset(static_cast<unsigned char*>(block) + extent.requested, kBehind, marked_behind(extent));
}

void report_overflow(void* block, const Extent& extent, const unsigned char* changed) noexcept {
  heap::Misuse misuse = Process::heap().describe(heap::MisuseKind::overflow, block);
  misuse.first_changed = static_cast<std::size_t>(changed - static_cast<unsigned char*>(block));
  ReportToUser::report(misuse);
  mark_end(block, extent);
}

// Large blocks are zeroed instead of filled, since only their present pages must be written.
// Untouched pages stay absent.
[[nodiscard]] bool becomes_zero(const Extent& freed) noexcept {
  return freed.room >= heaps::kAsked;
}

void mark_freed(void* block, const Extent& extent) noexcept {
  if (!becomes_zero(extent)) {
    memset(block, kFreed, extent.room);
  } else {
    heaps::clear_present(Process::heap().space().platform(), address_of(block), extent.room);
  }
}
[[nodiscard]] const unsigned char* find_change_in_freed(const void* block,
                                                        const Extent& extent) noexcept {
  if (!becomes_zero(extent)) return find_change(block, extent.room, kFreed);
  // A block of a destroyed heap may have any size.
  const std::size_t words = align_down(extent.room, sizeof(std::uint64_t));
  const unsigned char* const rest = static_cast<const unsigned char*>(block) + words;
  os::Linux& system = Process::heap().space().platform();
  const bool is_clear =
      heaps::is_zero_if_present(system, address_of(block), words, heaps::Absent::left) &&
      find_change(rest, extent.room - words, 0) == nullptr;
  return is_clear ? nullptr : find_change(block, extent.room, 0);
}

// Blocks of first-class heaps end with their heap; samples must be known to be free at once.
[[nodiscard]] bool may_wait(const void* block, const Extent& extent) noexcept {
  if (extent.room == 0 || extent.room > kLargestWaiting || Samples::may_know()) return false;
  return !space::is_heaps(Process::heap().space().map().tag_of(address_of(block)));
}

void give_to_heap(void* block) noexcept {
  const InHeap here;
  Process::release(block);
}

// Checks a block that has waited long enough, and frees it.
void let_go(void* block) noexcept {
  Extent extent;
  if (find_extent(block, &extent)) {
    if (const unsigned char* const changed = find_change_in_freed(block, extent)) {
      ReportToUser::report(Process::heap().describe(heap::MisuseKind::write_after_free, changed));
    }
  }
  give_to_heap(block);
}

}  // namespace

std::size_t room_for(std::size_t size) noexcept {
  Process::ensure_started();
  return Samples::is_on() || size > SIZE_MAX - kZoneBytes ? size : size + kZoneBytes;
}

void hand_out(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const std::size_t room = Guards::holds(block) ? bytes : Process::heap().usable_size(block);
  const Extent extent{.requested = bytes, .room = room, .is_live = true};
  mark_end(block, extent);
  track_allocation(block, bytes, room);
}

void check_end(void* block) noexcept {
  Extent extent;
  if (!find_extent(block, &extent) || !extent.is_live || extent.room == 0) return;
  const unsigned char* const changed = find_change_behind(block, extent);
  if (changed != nullptr) report_overflow(block, extent, changed);
}

void release(void* block) noexcept {
  Extent extent{};
  if (InHeap::is_here() || block == nullptr || !find_extent(block, &extent) ||
      !may_wait(block, extent)) {
    return give_to_heap(block);
  }
  mark_freed(block, extent);
  if (!put_waiting(block, extent.room)) return give_to_heap(block);
  while (void* const oldest = take_waiting(Waiting::overdue)) let_go(oldest);
}

bool make_room() noexcept {
  bool had_any = false;
  for (; void* const oldest = take_waiting(Waiting::all); had_any = true) let_go(oldest);
  return had_any;
}

void check_all() noexcept {
  static_cast<void>(make_room());
  const auto is_damaged = [](const void* block, const Extent& extent) noexcept {
    if (space::is_heaps(Process::heap().space().map().tag_of(address_of(block)))) return false;
    return extent.room != 0 && find_change_behind(block, extent) != nullptr;
  };
  for (RecordCursor at; void* const block = next_in_use(&at, is_damaged);) check_end(block);
}

}  // namespace allod::marks
