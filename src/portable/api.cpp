// The prefixed C API, as far as there is one on other systems than Linux: cmake/allod.def lists it.
#include "allod.h"

#include <errno.h>

#include "portable/heap.hpp"
#include "portable/options.hpp"
#include "portable/statistics.hpp"

using allod::align_up;
using allod::is_power_of_two;
using allod::portable::Process;
using allod::portable::ReturnNull;
using allod::portable::SetErrno;
namespace portable = allod::portable;

namespace {

[[nodiscard]] void* refuse(int error) noexcept {
  errno = error;
  return nullptr;
}
[[nodiscard]] std::size_t page_bytes() noexcept {
  Process::ensure_started();
  return Process::heap().space().platform().page_size();
}
void release(void* block) noexcept { portable::release(block); }

}  // namespace

extern "C" {

void* allod_malloc(size_t size) noexcept { return Process::allocate<SetErrno>(size); }
void* allod_calloc(size_t count, size_t size) noexcept {
  return portable::allocate_zeroed(count, size);
}
void* allod_realloc(void* block, size_t size) noexcept { return portable::reallocate(block, size); }
void* allod_reallocarray(void* block, size_t count, size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return refuse(ENOMEM);
  return portable::reallocate(block, bytes);
}
void allod_free(void* block) noexcept { portable::release(block); }
void allod_cfree(void* block) noexcept { release(block); }
void allod_free_sized(void* block, size_t) noexcept { release(block); }
void allod_free_aligned_sized(void* block, size_t, size_t) noexcept { release(block); }
void* allod_aligned_alloc(size_t alignment, size_t size) noexcept {
  return is_power_of_two(alignment) ? portable::allocate_aligned(size, alignment) : refuse(EINVAL);
}
int allod_posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* const result = alignment <= 8 ? Process::allocate<ReturnNull>(size)
                                      : Process::allocate_aligned(size, alignment);
  if (result == nullptr) return ENOMEM;
  *block = result;
  return 0;
}
void* allod_memalign(size_t alignment, size_t size) noexcept {
  if (alignment > SIZE_MAX / 2 + 1) return refuse(EINVAL);
  std::size_t power = 1;
  while (power < alignment) power *= 2;
  return portable::allocate_aligned(size, power);
}
void* allod_valloc(size_t size) noexcept { return portable::allocate_aligned(size, page_bytes()); }
void* allod_pvalloc(size_t size) noexcept {
  const std::size_t page = page_bytes();
  if (size > SIZE_MAX - page) return refuse(ENOMEM);
  return portable::allocate_aligned(align_up(size == 0 ? 1 : size, page), page);
}
size_t allod_malloc_usable_size(const void* block) noexcept { return portable::usable_size(block); }
size_t allod_malloc_good_size(size_t size) noexcept { return portable::good_size(size); }
int allod_malloc_trim(size_t) noexcept { return Process::trim() != 0 ? 1 : 0; }

void allod_stats_text(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  portable::write_summary(out);
}
int allod_stats_get(allod_stats_t* stats, size_t size) noexcept {
  if (stats == nullptr || size != sizeof(allod_stats_t)) return EINVAL;
  *stats = portable::collect_summary();
  return 0;
}
int allod_option_set(const char* name, const char* value) noexcept {
  if (name == nullptr || value == nullptr) return EINVAL;
  Process::ensure_started();
  const int error = portable::change_setting(name, value);
  if (error == 0) Process::heap().options() = portable::settings().heap;
  return error;
}
void allod_options_text(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  portable::write_options(out);
}
void allod_register_deferred_free(allod_deferred_free_t function, void* context) noexcept {
  Process::set_deferred_free(function, context);
}
void allod_collect(int force) noexcept {
  if (Process::wants_beats()) Process::beat(force != 0);
  force != 0 ? static_cast<void>(Process::trim()) : Process::collect();
}
const char* allod_version() noexcept { return ALLOD_VERSION; }
void allod_check() noexcept {
  Process::ensure_started();
  Process::heap().check_invariants();
}

}  // extern "C"
