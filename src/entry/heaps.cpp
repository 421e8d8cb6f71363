// The C API of first-class heaps.
#include "instance/heaps.hpp"

#include "allod.h"
#include "entry/entry.hpp"
#include "entry/surface.hpp"
#include "guards/guards.hpp"
#include "instance/memory_tags.hpp"
#include "process/faults.hpp"
#include "report/heap_reports.hpp"
#include "settings/heap_wishes.hpp"
#include "statistics/stats.hpp"

namespace allod::heaps {

namespace {

using entry::SetErrno;

ALLOD_INLINE Domain& domain_of(const allod_heap_t* heap) noexcept {
  auto& domain = *reinterpret_cast<Domain*>(const_cast<allod_heap_t*>(heap));
  if constexpr (Policy::kTracked) {
    if (!domain.active) report_gone(domain);
  }
  return domain;
}
allod_heap_t* handle_of(Domain& heap) noexcept { return reinterpret_cast<allod_heap_t*>(&heap); }

Process::Heap& engine() noexcept { return Process::heap(); }

// Records the end of the blocks, so that later frees are reported with their history.
[[maybe_unused]] void note_end_of_blocks(Domain& heap) noexcept {
  if constexpr (Policy::kBlockStates) {
    if (!hardened::active().has(Mitigation::history)) return;
  }
  const auto forget = [](void* block, std::size_t) noexcept {
    track_end(block);
    return true;
  };
  static_cast<void>(engine().walk_heap(heap, forget));
}

ALLOD_INLINE bool contains(Domain& heap, const void* block) noexcept {
  return engine().contains(heap, memory_tags::bare(block));
}

// Whether the program's callback has made room.
[[gnu::cold]] bool ask_at_limit(Domain& heap, std::size_t size) noexcept {
  const auto on_limit = reinterpret_cast<allod_heap_limit_t>(heap.on_limit);
  return on_limit != nullptr && on_limit(handle_of(heap), size, heap.on_limit_context) != 0;
}

// Null and ENOMEM if the heap refuses.
[[nodiscard]] ALLOD_INLINE void* allocate(Domain& heap, std::size_t size, std::size_t alignment = 1,
                                          bool* zero = nullptr) noexcept {
  Process::take_seat();
  for (;;) {
    HeapRequest request{.size = entry::room_in_heap_for(size, alignment), .alignment = alignment};
    void* const block = engine().allocate_in(Process::own_domain(), heap, request);
    if (__builtin_expect(request.slow, 0) && Process::wants_beats()) Process::beat(false);
    if (zero != nullptr) *zero = request.zero;
    if (__builtin_expect(block != nullptr, 1)) return entry::handed_out(block, size);
    if (!request.over_limit || !ask_at_limit(heap, size)) break;
  }
  return SetErrno::out_of_memory(size);
}

ALLOD_NOINLINE void* allocate_slowly(Domain& heap, std::size_t size) noexcept {
  return allocate(heap, size);
}

// Whether the block is in use, as far as is known, and belongs to another heap. It is then only
// reported. A double free is not, since the right heap would not make it better.
[[nodiscard]] ALLOD_INLINE bool is_others(Domain& heap, const void* block) noexcept {
  if constexpr (Policy::kBlockStates) {
    return hardened::is_in_use(block) && !contains(heap, block);
  }
  if constexpr (Policy::kTracked) {
    std::size_t bytes;
    return track_bounds(block, &bytes) && !contains(heap, block);
  }
  return false;
}

ALLOD_NOINLINE void release_slowly(Domain& heap, void* block) noexcept {
  constexpr auto kKind = heap::MisuseKind::wrong_heap;
  heap::Misuse misuse{};
  bool is_of_no_heap = false;
  if constexpr (Policy::kBlockStates) {
    is_of_no_heap = hardened::describe_empty(kKind, block, &misuse);
  } else if (Guards::holds(block)) {
    std::size_t bytes;
    if (!Guards::inspect(block, &bytes)) return;
    misuse = Guards::describe(kKind, block);
    is_of_no_heap = true;
  }
  if (!is_of_no_heap) return engine().release_in(Process::own_domain(), heap, block);
  misuse.claimed_owner = heap.id();
  ReportToUser::report(misuse);
}

ALLOD_INLINE void release(Domain& heap, void* block, std::size_t claimed) noexcept {
  if (!is_others(heap, block) && !entry::take_back(block, claimed)) return;
  block = memory_tags::bare(block);
  if (__builtin_expect(engine().release_at_once(heap, block), 1)) return;
  release_slowly(heap, block);
}

[[nodiscard]] void* reallocate(Domain& heap, void* block, std::size_t size) noexcept {
  if (block == nullptr) return allocate(heap, size);
  if (size == 0) {
    release(heap, block, kAnySize);
    return nullptr;
  }
  if constexpr (Policy::kTracked) {
    if (!track_resize(block)) return SetErrno::out_of_memory(size);
  }
  // Plain realloc does everything but the move into another heap.
  if (contains(heap, block)) return entry::reallocate(block, size);
  std::size_t old_size;
  if constexpr (Policy::kBlockStates) {
    // It may have size 0.
    if (!hardened::inspect(block, &old_size)) return SetErrno::out_of_memory(size);
  } else if (Guards::holds(block)) {
    if (!Guards::inspect(block, &old_size)) return SetErrno::out_of_memory(size);
  } else {
    old_size = engine().usable_size(block);
    if (old_size == 0 && !engine().is_block_of_no_bytes(block)) {
      return entry::reallocate(block, size);
    }
    if constexpr (Policy::kTracked) static_cast<void>(track_bounds(block, &old_size));
  }
  void* const moved = allocate(heap, size);
  if (moved == nullptr) return nullptr;
  copy_contents(moved, block, old_size < size ? old_size : size);
  entry::release(block);
  return moved;
}

[[nodiscard]] allod_heap_stats_t stats_of(const HeapFigures& figures) noexcept {
  return {.live = figures.live,
          .live_blocks = figures.live_blocks,
          .peak_live = figures.peak_live,
          .held = figures.held,
          .slabs = figures.slabs,
          .huge_blocks = figures.huge_blocks,
          .limit = figures.limit == SIZE_MAX ? 0 : figures.limit,
          .refused = figures.refused};
}

[[nodiscard]] char* copy_text(Domain& heap, const char* text, std::size_t length) noexcept {
  auto* const copy = static_cast<char*>(allocate(heap, length + 1));
  if (copy == nullptr) return nullptr;
  copy_contents(copy, text, length);
  copy[length] = '\0';
  return copy;
}

}  // namespace

ALLOD_HOT void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept {
  *owned = false;
  block = memory_tags::bare(block);
  for (;;) {
    const space::Tag tag = engine().space().map().tag_of(address_of(block));
    // Samples of the profile are ordinary blocks to the program.
    if (!space::is_heaps(tag) || space::owner_of(tag) == Profile::owner()) return nullptr;
    HeapRequest request{.size = entry::room_in_heap_for(size)};
    void* const beside = engine().allocate_beside(Process::own_domain(), block, request, owned);
    if (beside != nullptr) return entry::handed_out(beside, size);
    if (!*owned) return nullptr;
    if (!request.over_limit) break;
    auto* const heap = engine().heap_of(block);
    if (heap == nullptr || !ask_at_limit(*heap, size)) break;
  }
  return *owned ? SetErrno::out_of_memory(size) : nullptr;
}

}  // namespace allod::heaps

namespace heaps = allod::heaps;
namespace entry = allod::entry;
using allod::Process;
using entry::SetErrno;

extern "C" {

allod_heap_t* allod_heap_new(void) noexcept { return allod_heap_new_ex(nullptr); }

allod_heap_t* allod_heap_new_ex(const allod_heap_options_t* options) noexcept {
  allod_heap_options_t chosen{};
  if (options != nullptr) {
    if (options->struct_size == 0 || options->struct_size > sizeof chosen) {
      errno = EINVAL;
      return nullptr;
    }
    memcpy(&chosen, options, options->struct_size);
  }
  allod::space::PageWishes wishes;
  if (!allod::read_wishes(chosen, wishes) || (chosen.hardened != 0 && chosen.memory != nullptr)) {
    errno = EINVAL;
    return nullptr;
  }
  Process::ensure_started();
  int error;
  // The hardened library protects every block anyway.
  const bool hardened = chosen.hardened != 0 && !allod::Policy::kBlockStates;
  Process::take_seat();
  auto* const heap = Process::heap().create_heap(chosen.name, wishes, &error, hardened);
  if (heap == nullptr) {
    errno = error;
    return nullptr;
  }
  if (chosen.byte_limit != 0) Process::heap().limit_heap(*heap, chosen.byte_limit);
  const bool has_guards = hardened && Process::heap().space().guard_bytes(
                                          allod::space::Filling::sparse, heap->source, true) != 0;
  if (has_guards) allod::faults::watch();
  heap->on_limit = reinterpret_cast<void (*)()>(chosen.on_limit);
  heap->on_limit_context = chosen.on_limit_context;
  heap->reports_leaks = chosen.report_leaks != 0;
  heap->unseen = chosen.unseen != 0;
  return heaps::handle_of(*heap);
}

int allod_heap_delete(allod_heap_t* heap) noexcept {
  if (heap == nullptr) return 0;
  return Process::heap().delete_heap(heaps::domain_of(heap)) ? 0 : EBUSY;
}

void allod_heap_destroy(allod_heap_t* heap) noexcept {
  if (heap == nullptr) return;
  auto& domain = heaps::domain_of(heap);
  if (domain.reports_leaks) heaps::report_leaks(domain);
  if constexpr (allod::kMayKeepHistory) allod::heaps::note_end_of_blocks(domain);
  Process::heap().destroy_heap(domain);
}

void* allod_heap_malloc(allod_heap_t* heap, size_t size) noexcept {
  auto& domain = heaps::domain_of(heap);
  void* const block = Process::heap().allocate_at_once(domain, entry::room_in_heap_for(size));
  if (__builtin_expect(block != nullptr, 1)) return entry::handed_out(block, size);
  return heaps::allocate_slowly(domain, size);
}
void* allod_heap_calloc(allod_heap_t* heap, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  bool zero = false;
  void* const block = heaps::allocate(heaps::domain_of(heap), bytes, 1, &zero);
  if (block != nullptr && !zero) allod::clear_contents(block, bytes);
  return block;
}
void* allod_heap_realloc(allod_heap_t* heap, void* block, size_t size) noexcept {
  return heaps::reallocate(heaps::domain_of(heap), block, size);
}
void* allod_heap_reallocarray(allod_heap_t* heap, void* block, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  return heaps::reallocate(heaps::domain_of(heap), block, bytes);
}
void* allod_heap_aligned_alloc(allod_heap_t* heap, size_t alignment, size_t size) noexcept {
  if (!allod::is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return heaps::allocate(heaps::domain_of(heap), size, alignment);
}
char* allod_heap_strdup(allod_heap_t* heap, const char* text) noexcept {
  return heaps::copy_text(heaps::domain_of(heap), text, strlen(text));
}
char* allod_heap_strndup(allod_heap_t* heap, const char* text, size_t most) noexcept {
  return heaps::copy_text(heaps::domain_of(heap), text, strnlen(text, most));
}
void allod_heap_free(allod_heap_t* heap, void* block) noexcept {
  heaps::release(heaps::domain_of(heap), block, allod::kAnySize);
}
void allod_heap_free_sized(allod_heap_t* heap, void* block, size_t size) noexcept {
  heaps::release(heaps::domain_of(heap), block, size);
}

int allod_heap_contains(allod_heap_t* heap, const void* block) noexcept {
  return heaps::contains(heaps::domain_of(heap), block) ? 1 : 0;
}
int allod_heap_walk(allod_heap_t* heap, allod_heap_visit_t visit, void* context) noexcept {
  int result = 0;
  const auto tell = [&](void* block, std::size_t bytes) noexcept {
    if constexpr (allod::Policy::kBlockStates) bytes = allod::hardened::size_of(block);
    if constexpr (allod::Policy::kTracked) bytes = entry::usable_size(block);
    result = visit(block, bytes, context);
    return result == 0;
  };
  if (Process::heap().walk_heap(heaps::domain_of(heap), tell)) return result;
  errno = ENOMEM;
  return -1;
}
size_t allod_heap_report_leaks(allod_heap_t* heap) noexcept {
  return heaps::report_leaks(heaps::domain_of(heap));
}
size_t allod_heap_collect(allod_heap_t* heap) noexcept {
  return Process::heap().collect_heap(heaps::domain_of(heap));
}
void allod_heap_set_limit(allod_heap_t* heap, size_t bytes) noexcept {
  Process::heap().limit_heap(heaps::domain_of(heap), bytes == 0 ? SIZE_MAX : bytes);
}
const char* allod_heap_name(const allod_heap_t* heap) noexcept {
  return heaps::domain_of(heap).name;
}
int allod_heap_stats_get(allod_heap_t* heap, allod_heap_stats_t* stats, size_t size) noexcept {
  if (stats == nullptr || size != sizeof *stats) return EINVAL;
  *stats = heaps::stats_of(Process::heap().figures_of(heaps::domain_of(heap)));
  return 0;
}
size_t allod_heaps_get(allod_heap_row_t* rows, size_t room, size_t size) noexcept {
  if (size != sizeof *rows) return 0;
  Process::ensure_started();
  size_t count = 0;
  heaps::Domain* cursor = nullptr;
  for (heaps::Row row; heaps::next_row(&cursor, &row); ++count) {
    if (count >= room) continue;
    memcpy(rows[count].name, row.name, sizeof row.name);
    rows[count].id = row.id;
    rows[count].figures = heaps::stats_of(row.figures);
  }
  return count;
}
void allod_heap_stats_json(allod_heap_t* heap, allod_write_t write, void* context) noexcept {
  auto& domain = heaps::domain_of(heap);
  heaps::Row row{{}, domain.id(), Process::heap().figures_of(domain)};
  memcpy(row.name, domain.name, sizeof row.name);
  allod::Text out{write, context};
  allod::write_heap_json(out, row);
  out << "\n";
}

void allod_register_deferred_free(allod_deferred_free_t function, void* context) noexcept {
  Process::set_deferred_free(function, context);
}
void allod_collect(int force) noexcept {
  if (Process::wants_beats()) Process::beat(force != 0);
  force != 0 ? static_cast<void>(allod::surface::trim()) : Process::collect();
}

}  // extern "C"
