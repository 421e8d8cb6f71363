// Allod's zone, which becomes the default one: whoever calls libmalloc by another way than the
// functions of interpose.cpp gets Allod's blocks too, and finds whose a block is.
#include "darwin/zone.hpp"

#include <errno.h>
#include <mach/mach_init.h>
#include <malloc/malloc.h>

#include "allod.h"
#include "portable/statistics.hpp"

namespace allod::darwin {

namespace {

using portable::Process;
using portable::ReturnNull;
// Called for each block of another zone: none of ours asks more of it.
size_t size_of(malloc_zone_t*, const void* block) { return portable::usable_size(block); }
void* allocate(malloc_zone_t*, size_t size) { return Process::allocate<portable::SetErrno>(size); }
void* allocate_zeroed(malloc_zone_t*, size_t count, size_t size) {
  return portable::allocate_zeroed(count, size);
}
void* allocate_page(malloc_zone_t*, size_t size) { return allod_valloc(size); }
void* allocate_aligned(malloc_zone_t*, size_t alignment, size_t size) {
  void* block = nullptr;
  return allod_posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
}
void release(malloc_zone_t*, void* block) { portable::release(block); }
void release_sized(malloc_zone_t*, void* block, size_t) { portable::release(block); }
void* reallocate(malloc_zone_t*, void* block, size_t size) {
  return portable::reallocate(block, size);
}
unsigned allocate_many(malloc_zone_t*, size_t size, void** blocks, unsigned count) {
  for (unsigned done = 0; done < count; ++done) {
    blocks[done] = Process::allocate<ReturnNull>(size);
    if (blocks[done] == nullptr) return done;
  }
  return count;
}
void release_many(malloc_zone_t*, void** blocks, unsigned count) {
  for (unsigned i = 0; i < count; ++i) portable::release(blocks[i]);
}
// The process has no other heap to fall back to.
void destroy(malloc_zone_t*) {}
size_t relieve(malloc_zone_t*, size_t) { return Process::trim(); }
boolean_t claims(malloc_zone_t*, void* address) { return portable::is_foreign(address) ? 0 : 1; }

// --- introspection --------------------------------------------------------------------------

// Of this process, tells where the zone's memory is, and its blocks that are spans; small blocks
// lie within the ranges. A debugger's process would have to read the heap's records.
kern_return_t enumerate(task_t task, void* context, unsigned wanted, vm_address_t, memory_reader_t,
                        vm_range_recorder_t recorder) {
  if (task != mach_task_self()) return KERN_NOT_SUPPORTED;
  Process::ensure_started();
  Process::heap().space().for_each_span([&](const space::Span& span) noexcept {
    if (span.state != space::SpanState::used) return;
    vm_range_t range{span.base, span.size.bytes()};
    const unsigned kinds = span.home == nullptr && !Process::heap().is_kept(span)
                               ? MALLOC_PTR_REGION_RANGE_TYPE | MALLOC_PTR_IN_USE_RANGE_TYPE
                               : MALLOC_PTR_REGION_RANGE_TYPE;
    if ((kinds & wanted) != 0) recorder(task, context, kinds & wanted, &range, 1);
  });
  return KERN_SUCCESS;
}
size_t good_size(malloc_zone_t*, size_t size) { return portable::good_size(size); }
boolean_t check(malloc_zone_t*) {
  Process::ensure_started();
  Process::heap().check_invariants();
  return 1;
}
void print(malloc_zone_t*, boolean_t) {
  DescriptorText out{1};
  portable::write_summary(out);
}
void log(malloc_zone_t*, void*) {}
// Around a fork, the handlers that the heap has registered hold its locks.
void do_nothing(malloc_zone_t*) {}
boolean_t is_locked(malloc_zone_t*) { return 0; }
void count(malloc_zone_t*, malloc_statistics_t* statistics) {
  const allod_stats_t now = portable::collect_summary();
  statistics->blocks_in_use = static_cast<unsigned>(now.live_blocks);
  statistics->size_in_use = now.live;
  statistics->max_size_in_use = now.live;
  statistics->size_allocated = now.reserved;
}

constinit malloc_introspection_t introspection{};
constinit malloc_zone_t own_zone{};

void fill_zone() noexcept {
  introspection.enumerator = &enumerate;
  introspection.good_size = &good_size;
  introspection.check = &check;
  introspection.print = &print;
  introspection.log = &log;
  introspection.force_lock = &do_nothing;
  introspection.force_unlock = &do_nothing;
  introspection.statistics = &count;
  introspection.zone_locked = &is_locked;
  introspection.reinit_lock = &do_nothing;
  own_zone.size = &size_of;
  own_zone.malloc = &allocate;
  own_zone.calloc = &allocate_zeroed;
  own_zone.valloc = &allocate_page;
  own_zone.free = &release;
  own_zone.realloc = &reallocate;
  own_zone.destroy = &destroy;
  own_zone.zone_name = "Allod";
  own_zone.batch_malloc = &allocate_many;
  own_zone.batch_free = &release_many;
  own_zone.introspect = &introspection;
  own_zone.memalign = &allocate_aligned;
  own_zone.free_definite_size = &release_sized;
  own_zone.pressure_relief = &relieve;
  own_zone.claimed_address = &claims;
  constexpr unsigned kWithClaims = 10;
  own_zone.version = kWithClaims;
}

[[nodiscard]] malloc_zone_t* first_zone() noexcept {
  vm_address_t* zones = nullptr;
  unsigned count = 0;
  if (malloc_get_all_zones(mach_task_self(), nullptr, &zones, &count) != KERN_SUCCESS) {
    return nullptr;
  }
  return count > 0 ? reinterpret_cast<malloc_zone_t*>(zones[0]) : nullptr;
}

// libmalloc takes the first zone for the default one, and a zone that comes anew last. So those
// before ours leave and come again, after jemalloc.
[[gnu::constructor]] void register_zone() noexcept {
  constexpr int kMost = 16;
  fill_zone();
  malloc_zone_register(&own_zone);
  for (int moved = 0; moved < kMost; ++moved) {
    malloc_zone_t* const first = first_zone();
    if (first == nullptr || first == &own_zone) return;
    malloc_zone_unregister(first);
    malloc_zone_register(first);
  }
}

// --- blocks of others -----------------------------------------------------------------------

void release_elsewhere(void* block) {
  malloc_zone_t* const zone = malloc_zone_from_ptr(block);
  if (zone != nullptr) return malloc_zone_free(zone, block);
  Process::release_slow(block);
}
void* reallocate_elsewhere(void* block, std::size_t size) {
  malloc_zone_t* const zone = malloc_zone_from_ptr(block);
  if (zone != nullptr) return malloc_zone_realloc(zone, block, size);
  return portable::reallocate(block, size);
}
std::size_t size_elsewhere(void* block) {
  malloc_zone_t* const zone = malloc_zone_from_ptr(block);
  return zone != nullptr ? zone->size(zone, block) : 0;
}

}  // namespace

constinit const portable::Runtime kOtherZones{&release_elsewhere, &reallocate_elsewhere,
                                              &size_elsewhere};

}  // namespace allod::darwin
