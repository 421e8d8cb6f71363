// The prefixed C API.
#include "allod.h"

#include "entry/bounds.hpp"
#include "entry/surface.hpp"
#include "process/setup.hpp"
#include "settings/options.hpp"
#include "statistics/stats.hpp"
#include "text/new_failure.hpp"

namespace entry = allod::entry;
namespace surface = allod::surface;
using entry::Origin;
using entry::SetErrno;

extern "C" {

void* allod_malloc(size_t size) noexcept { return entry::allocate<SetErrno>(size); }
void* allod_calloc(size_t count, size_t size) noexcept {
  return entry::allocate_zeroed(count, size);
}
void* allod_realloc(void* block, size_t size) noexcept { return entry::reallocate(block, size); }
void* allod_reallocarray(void* block, size_t count, size_t size) noexcept {
  return surface::reallocarray(block, count, size);
}
void allod_free(void* block) noexcept { entry::release(block); }
void allod_cfree(void* block) noexcept { entry::release(block); }
void allod_free_sized(void* block, size_t size) noexcept { entry::release(block, size); }
void allod_free_aligned_sized(void* block, size_t, size_t size) noexcept {
  entry::release(block, size);
}
void* allod_aligned_alloc(size_t alignment, size_t size) noexcept {
  return surface::aligned_alloc(alignment, size);
}
int allod_posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  return surface::posix_memalign(block, alignment, size);
}
void* allod_memalign(size_t alignment, size_t size) noexcept {
  return surface::memalign(alignment, size);
}
void* allod_valloc(size_t size) noexcept { return surface::valloc(size); }
void* allod_pvalloc(size_t size) noexcept { return surface::pvalloc(size); }
size_t allod_malloc_usable_size(const void* block) noexcept { return entry::usable_size(block); }
size_t allod_malloc_good_size(size_t size) noexcept { return surface::good_size(size); }
int allod_mallopt(int parameter, int value) noexcept { return surface::mallopt(parameter, value); }
int allod_malloc_trim(size_t) noexcept { return surface::trim(); }

void* allod_new(size_t size) { return entry::allocate<entry::ThrowBadAlloc, Origin::scalar>(size); }
void* allod_new_aligned(size_t size, size_t alignment) {
  void* const block = entry::allocate_aligned<entry::ReturnNull, Origin::scalar>(size, alignment);
  return block != nullptr ? block : entry::new_or_throw(size, alignment);
}
void* allod_new_nothrow(size_t size) noexcept {
  return entry::allocate<entry::NewReturnsNull, Origin::scalar>(size);
}
void* allod_new_aligned_nothrow(size_t size, size_t alignment) noexcept {
  void* const block = entry::allocate_aligned<entry::ReturnNull, Origin::scalar>(size, alignment);
  return block != nullptr ? block : entry::new_or_null(size, alignment);
}
void allod_delete(void* block) noexcept { entry::release<Origin::scalar>(block); }
void allod_delete_sized(void* block, size_t size) noexcept {
  entry::release<Origin::scalar>(block, size);
}
void allod_delete_aligned(void* block, size_t) noexcept { entry::release<Origin::scalar>(block); }
void allod_delete_sized_aligned(void* block, size_t size, size_t) noexcept {
  entry::release<Origin::scalar>(block, size);
}

void allod_stats_text(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::write_stats_text(out);
}
void allod_stats_json(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::write_stats_json(out);
}
int allod_stats_get(allod_stats_t* stats, size_t size) noexcept {
  if (stats == nullptr || size != sizeof(allod_stats_t)) return EINVAL;
  *stats = allod::collect_summary();
  return 0;
}
int allod_option_set(const char* name, const char* value) noexcept {
  return name == nullptr || value == nullptr ? EINVAL : allod::set_option(name, value);
}
void allod_options_text(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::write_options(out);
}
void allod_options_markdown(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::write_options_markdown(out);
}
int allod_bounds(const void* address, void** start, size_t* size) noexcept {
  const allod::heap::Bounds block = allod::bounds::find(address);
  if (block.start == nullptr) return 0;
  if (start != nullptr) *start = const_cast<void*>(block.start);
  if (size != nullptr) *size = block.bytes;
  return 1;
}
size_t allod_room(const void* address, size_t bytes) noexcept {
  return allod::bounds::room(address, bytes);
}
void allod_report_copy(const void* address, size_t bytes, int writes,
                       const char* function) noexcept {
  allod::bounds::report_copy(address, bytes, writes != 0, function != nullptr ? function : "?");
}
const char* allod_version() noexcept { return ALLOD_VERSION; }
void allod_check() noexcept {
  if constexpr (allod::Policy::kTracked) allod::marks::check_all();
  allod::Process::heap().check_invariants();
}

}  // extern "C"
