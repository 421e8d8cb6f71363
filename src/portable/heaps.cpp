// The C API of first-class heaps.
#include <errno.h>
#include <string.h>

#include "allod.h"
#include "portable/heap.hpp"
#include "settings/heap_wishes.hpp"

namespace allod::portable {

namespace {

using Domain = Process::Heap::HeapDomain;

[[nodiscard]] Process::Heap& engine() noexcept { return Process::heap(); }
[[nodiscard]] ALLOD_INLINE Domain& domain_of(const allod_heap_t* heap) noexcept {
  return *reinterpret_cast<Domain*>(const_cast<allod_heap_t*>(heap));
}
[[nodiscard]] allod_heap_t* handle_of(Domain& heap) noexcept {
  return reinterpret_cast<allod_heap_t*>(&heap);
}

// Whether the program's callback has made room.
[[gnu::cold]] bool ask_at_limit(Domain& heap, std::size_t size) noexcept {
  const auto on_limit = reinterpret_cast<allod_heap_limit_t>(heap.on_limit);
  return on_limit != nullptr && on_limit(handle_of(heap), size, heap.on_limit_context) != 0;
}

// Null and ENOMEM if the heap refuses.
[[nodiscard]] ALLOD_NOINLINE void* allocate_in(Domain& heap, std::size_t size,
                                               std::size_t alignment = 1,
                                               bool* zero = nullptr) noexcept {
  Process::take_seat();
  for (;;) {
    heaps::HeapRequest request{.size = size, .alignment = alignment};
    void* const block = engine().allocate_in(Process::own_domain(), heap, request);
    if (request.slow && Process::wants_beats()) Process::beat(false);
    if (zero != nullptr) *zero = request.zero;
    if (block != nullptr) return block;
    if (!request.over_limit || !ask_at_limit(heap, size)) break;
  }
  return SetErrno::out_of_memory(size);
}

void release_in(Domain& heap, void* block) noexcept {
  if (__builtin_expect(engine().release_at_once(heap, block), 1)) return;
  engine().release_in(Process::own_domain(), heap, block);
}

[[nodiscard]] void* reallocate_in(Domain& heap, void* block, std::size_t size) noexcept {
  if (block == nullptr) return allocate_in(heap, size);
  if (size == 0) {
    release_in(heap, block);
    return nullptr;
  }
  // Plain realloc does everything but the move into another heap.
  const std::size_t before = engine().usable_size(block);
  if (before == 0 || engine().contains(heap, block)) return reallocate(block, size);
  void* const moved = allocate_in(heap, size);
  if (moved == nullptr) return nullptr;
  copy_contents(moved, block, before < size ? before : size);
  Process::release(block);
  return moved;
}

// An error number; ENOSYS for what Linux alone has.
[[nodiscard]] int read_wishes(const allod_heap_options_t& options,
                              space::PageWishes& wishes) noexcept {
  if (options.pages > ALLOD_PAGES_1G || options.purge > ALLOD_PURGE_AFTER_DELAY) return EINVAL;
  if (options.hardened != 0 || options.report_leaks != 0 || options.nodes != 0) return ENOSYS;
  return allod::read_wishes(options, wishes) ? 0 : EINVAL;
}

[[nodiscard]] char* copy_text(Domain& heap, const char* text, std::size_t length) noexcept {
  auto* const copy = static_cast<char*>(allocate_in(heap, length + 1));
  if (copy == nullptr) return nullptr;
  copy_contents(copy, text, length);
  copy[length] = '\0';
  return copy;
}

}  // namespace

void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept {
  *owned = false;
  while (space::is_heaps(engine().space().map().tag_of(address_of(block)))) {
    heaps::HeapRequest request{.size = size};
    void* const beside = engine().allocate_beside(Process::own_domain(), block, request, owned);
    if (beside != nullptr || !*owned) return beside;
    auto* const heap = request.over_limit ? engine().heap_of(block) : nullptr;
    if (heap == nullptr || !ask_at_limit(*heap, size)) return SetErrno::out_of_memory(size);
  }
  return nullptr;
}

}  // namespace allod::portable

namespace portable = allod::portable;
using portable::Process;
using portable::SetErrno;

extern "C" {

allod_heap_t* allod_heap_new() noexcept { return allod_heap_new_ex(nullptr); }
allod_heap_t* allod_heap_new_ex(const allod_heap_options_t* options) noexcept {
  allod_heap_options_t chosen{};
  allod::space::PageWishes wishes;
  const bool is_known =
      options == nullptr || (options->struct_size != 0 && options->struct_size <= sizeof chosen);
  if (is_known && options != nullptr) memcpy(&chosen, options, options->struct_size);
  int error = is_known ? portable::read_wishes(chosen, wishes) : EINVAL;
  portable::Domain* heap = nullptr;
  if (error == 0) {
    Process::ensure_started();
    Process::take_seat();
    heap = Process::heap().create_heap(chosen.name, wishes, &error, false);
  }
  if (heap == nullptr) {
    errno = error;
    return nullptr;
  }
  if (chosen.byte_limit != 0) Process::heap().limit_heap(*heap, chosen.byte_limit);
  heap->on_limit = reinterpret_cast<void (*)()>(chosen.on_limit);
  heap->on_limit_context = chosen.on_limit_context;
  heap->unseen = chosen.unseen != 0;
  return portable::handle_of(*heap);
}
int allod_heap_delete(allod_heap_t* heap) noexcept {
  return heap == nullptr || Process::heap().delete_heap(portable::domain_of(heap)) ? 0 : EBUSY;
}
void allod_heap_destroy(allod_heap_t* heap) noexcept {
  if (heap != nullptr) Process::heap().destroy_heap(portable::domain_of(heap));
}
void* allod_heap_malloc(allod_heap_t* heap, size_t size) noexcept {
  auto& domain = portable::domain_of(heap);
  void* const block = Process::heap().allocate_at_once(domain, size);
  return __builtin_expect(block != nullptr, 1) ? block : portable::allocate_in(domain, size);
}
void* allod_heap_calloc(allod_heap_t* heap, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  bool zero = false;
  void* const block = portable::allocate_in(portable::domain_of(heap), bytes, 1, &zero);
  if (block != nullptr && !zero) allod::clear_contents(block, bytes);
  return block;
}
void* allod_heap_realloc(allod_heap_t* heap, void* block, size_t size) noexcept {
  return portable::reallocate_in(portable::domain_of(heap), block, size);
}
void* allod_heap_reallocarray(allod_heap_t* heap, void* block, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  return portable::reallocate_in(portable::domain_of(heap), block, bytes);
}
void* allod_heap_aligned_alloc(allod_heap_t* heap, size_t alignment, size_t size) noexcept {
  if (allod::is_power_of_two(alignment)) {
    return portable::allocate_in(portable::domain_of(heap), size, alignment);
  }
  errno = EINVAL;
  return nullptr;
}
char* allod_heap_strdup(allod_heap_t* heap, const char* text) noexcept {
  return portable::copy_text(portable::domain_of(heap), text, strlen(text));
}
char* allod_heap_strndup(allod_heap_t* heap, const char* text, size_t most) noexcept {
  return portable::copy_text(portable::domain_of(heap), text, strnlen(text, most));
}
void allod_heap_free(allod_heap_t* heap, void* block) noexcept {
  portable::release_in(portable::domain_of(heap), block);
}
void allod_heap_free_sized(allod_heap_t* heap, void* block, size_t) noexcept {
  portable::release_in(portable::domain_of(heap), block);
}
int allod_heap_contains(allod_heap_t* heap, const void* block) noexcept {
  return Process::heap().contains(portable::domain_of(heap), block) ? 1 : 0;
}
int allod_heap_walk(allod_heap_t* heap, allod_heap_visit_t visit, void* context) noexcept {
  int result = 0;
  const auto tell = [&](void* block, std::size_t bytes) noexcept {
    result = visit(block, bytes, context);
    return result == 0;
  };
  if (Process::heap().walk_heap(portable::domain_of(heap), tell)) return result;
  errno = ENOMEM;
  return -1;
}
size_t allod_heap_collect(allod_heap_t* heap) noexcept {
  return Process::heap().collect_heap(portable::domain_of(heap));
}
void allod_heap_set_limit(allod_heap_t* heap, size_t bytes) noexcept {
  Process::heap().limit_heap(portable::domain_of(heap), bytes == 0 ? SIZE_MAX : bytes);
}
const char* allod_heap_name(const allod_heap_t* heap) noexcept {
  return portable::domain_of(heap).name;
}
int allod_heap_stats_get(allod_heap_t* heap, allod_heap_stats_t* stats, size_t size) noexcept {
  if (stats == nullptr || size != sizeof *stats) return EINVAL;
  const auto figures = Process::heap().figures_of(portable::domain_of(heap));
  *stats = {.live = figures.live,
            .live_blocks = figures.live_blocks,
            .peak_live = figures.peak_live,
            .held = figures.held,
            .slabs = figures.slabs,
            .huge_blocks = figures.huge_blocks,
            .limit = figures.limit == SIZE_MAX ? 0 : figures.limit,
            .refused = figures.refused};
  return 0;
}

}  // extern "C"
