#include "hardened/large.hpp"

#include <string.h>

namespace allod::hardened {

// --- guards ------------------------------------------------------------------------------

namespace {

void close(Pages pages) noexcept {
  if (pages.bytes != 0) platform().close(reinterpret_cast<void*>(pages.from), pages.bytes);
}
[[nodiscard]] bool open(Pages pages) noexcept {
  return pages.bytes == 0 || platform().open(reinterpret_cast<void*>(pages.from), pages.bytes);
}

// A span that the heap has kept since it was shut still has its guard.
[[nodiscard]] bool set_guard_of_span(const Block& block, Address from) noexcept {
  auto& in = Process::heap().space();
  space::Span& span = span_of(block);
  if (span.guarded_from != 0 && platform().closes()) {
    if (span.has_shut && !in.reopen(span.base, span.size.bytes())) return false;
    return in.move_guard(span, from);
  }
  if (!in.unguard(span)) return false;
  if (may_have_guard(block)) in.guard(span, from);
  return true;
}

}  // namespace

bool move_guard(const Block& block, std::size_t before, std::size_t now) noexcept {
  if (!may_have_guard(block)) return true;
  const Pages old = spare_pages_of(block, before);
  const Pages spare = spare_pages_of(block, now);
  if (old.from == spare.from) return true;
  if (block.slab == nullptr) return Process::heap().space().move_guard(span_of(block), spare.from);
  if (old.from < spare.from) return open({old.from, old.bytes - spare.bytes});
  close({spare.from, spare.bytes - old.bytes});
  return true;
}
// Sets the guard. For a block with its own span, it is at the end of the span. In a slab, which may
// have another guard, it is set only if that needs no mapping. Opens all of a closed block but the
// guard.
bool set_guard(Block block, BlockState before, std::size_t requested) noexcept {
  const Pages pages = spare_pages_of(block, requested);
  if (block.slab == nullptr) return set_guard_of_span(block, pages.from);
  if (before.is_closed()) {
    if (before.is_shut()) {
      const Pages all = pages_of(block);
      return Process::heap().space().reopen(all.from, all.bytes) &&
             move_guard(block, block.requested(before), requested);
    }
    const Address end = block.address + block.bytes;
    return open(whole_pages(block.address, pages.from < end ? pages.from : end));
  }
  if (may_have_guard(block)) close(pages);
  return true;
}
bool clear_guard(Block block, std::size_t requested) noexcept {
  if (!may_have_guard(block)) return true;
  if (block.slab == nullptr) return Process::heap().space().unguard(span_of(block));
  return open(spare_pages_of(block, requested));
}

// --- pages -------------------------------------------------------------------------------

namespace {

// Closed pages have page table entries even if they were never touched. So at most 64 MiB are
// closed, and the rest is only purged.
[[nodiscard]] Pages closed_part(const Block& block) noexcept {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  const Pages pages = pages_of(block);
  return {pages.from, pages.bytes < kMost ? pages.bytes : kMost};
}

// Purges pages, or else zeroes those before `open_end`; pages behind it may be closed. Returns the
// bytes that stay resident.
std::size_t empty(Pages pages, Address open_end) noexcept {
  void* const memory = reinterpret_cast<void*>(pages.from);
  if (pages.bytes == 0 || platform().purge(memory, pages.bytes)) return 0;
  const Address end = pages.from + pages.bytes < open_end ? pages.from + pages.bytes : open_end;
  if (end > pages.from) memset(memory, 0, end - pages.from);
  return pages.bytes;
}
// Zeroes the parts of a block outside its whole pages.
void clear_edges(Address from, std::size_t bytes, Pages pages) noexcept {
  const Address end = pages.from + pages.bytes;
  memset(reinterpret_cast<void*>(from), 0, pages.from - from);
  memset(reinterpret_cast<void*>(end), 0, from + bytes - end);
}

// Zeroes the pages without touching absent ones. Returns the bytes that stay resident.
std::size_t wipe(Pages pages) noexcept { return heaps::wipe(platform(), pages.from, pages.bytes); }
constexpr std::size_t kBetterShut = std::size_t{512} << 10;
[[nodiscard]] bool is_hardly_in_memory(Pages pages) noexcept {
  constexpr std::size_t kFew = 8;
  unsigned char seen[kBetterShut / 4096] = {};
  if (pages.bytes > kBetterShut ||
      !platform().look(reinterpret_cast<void*>(pages.from), pages.bytes, seen))
    return false;
  std::size_t count = 0;
  for (std::size_t i = 0; i < pages.bytes / platform().page_size(); ++i) count += seen[i] & 1U;
  return count <= kFew;
}

// Makes the block inaccessible while it is free, without moving its guard. Unlike close(), this
// takes the same time for any number of pages, but needs a mapping. False if close() is better, or
// the only way.
[[nodiscard]] bool shut(const Block& block, BlockState state, Left* left) noexcept {
  constexpr std::size_t kMostKept = std::size_t{32} << 20;
  const Pages pages = pages_of(block);
  const Address spare = spare_pages_of(block, block.requested(state)).from;
  const Address end = pages.from + pages.bytes;
  const Pages open{pages.from, (spare < end ? spare : end) - pages.from};
  // Blocks that a sweep holds for long must not stay resident.
  const bool keeps = block.bytes <= kMostKept && !on<Mitigation::sweep>();
  if (platform().closes() && (keeps ? is_hardly_in_memory(open) : block.bytes < kBetterShut)) {
    return false;
  }
  clear_edges(block.address, block.bytes, pages);
  *left = {Access::shut, keeps ? wipe(open) : empty(open, spare)};
  space::Span& span = span_of(block);
  if (block.is_in_slab() && platform().closes()) Process::heap().space().note_closed(span);
  return Process::heap().space().shut(span, pages.from, pages.bytes);
}

}  // namespace

Left discard(Block block, BlockState state) noexcept {
  const bool is_zero = on<Mitigation::zero>();
  if (block.is_heaps) {
    if (is_zero) clear_part(block, block.address, erased_bytes(block, state));
    return {Access::open, block.bytes};
  }
  if (Left left; is_closed_while_free(block) && shut(block, state, &left)) return left;
  const Pages pages = pages_of(block);
  const Address end = pages.from + pages.bytes;
  if (is_zero) clear_edges(block.address, block.bytes, pages);
  const Address spare = spare_pages_of(block, block.requested(state)).from;
  const Pages closed = closed_part(block);
  const Address closed_end = closed.from + closed.bytes;
  // A block that is closed as a whole need not be opened first.
  if (is_closed_while_free(block) &&
      platform().close(reinterpret_cast<void*>(closed.from), closed.bytes)) {
    Process::heap().space().note_closed(span_of(block));
    empty({closed_end, end - closed_end}, spare);
    return {Access::closed};
  }
  const bool is_open = clear_guard(block, block.requested(state));
  // The kernel refused to open a part of it: note this, so that it is opened before reuse.
  if (!is_open) Process::heap().space().note_closed(span_of(block));
  const std::size_t in_memory = is_zero ? empty(pages, is_open ? end : spare) : block.bytes;
  return {is_open ? Access::open : Access::closed, in_memory};
}

void clear_part(const Block& block, Address from, std::size_t bytes) noexcept {
  if (bytes < heaps::kAsked || is_filled(block) || !heaps::tells_pages(span_of(block))) {
    return heaps::fill_with_zeros(from, bytes);
  }
  const bool is_whole = heaps::clear_present(platform(), from, bytes);
  if (is_whole && !block.is_large() && bytes >= block.bytes / 2)
    block.slab->note_filled(block.index);
}
void clear_large(Address block, std::size_t bytes) noexcept {
  const Pages pages = whole_pages(block, block + bytes);
  void* const first = reinterpret_cast<void*>(pages.from);
  if (platform().present_bytes(first, pages.bytes) > bytes / 2) {
    memset(reinterpret_cast<void*>(block), 0, bytes);
    return;
  }
  clear_edges(block, bytes, pages);
  wipe(pages);
}

bool lend(void* address) noexcept {
  const Block block = find(address);
  if (block.bytes == 0 || !block.cell.load().is_closed()) return true;
  const Pages first = whole_pages(block.address, block.address + platform().page_size());
  const bool is_shut = __atomic_load_n(&span_of(block).has_shut, __ATOMIC_RELAXED);
  if (is_shut && !Process::heap().space().reopen(first.from, first.bytes)) return false;
  return open(first);
}

}  // namespace allod::hardened
