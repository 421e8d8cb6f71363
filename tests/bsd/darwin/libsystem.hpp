// As much of macOS as Allod's library asks for, on Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace libsystem {

// malloc_zone_t of Apple's <malloc/malloc.h>, version 10.
struct Zone {
  void* reserved[2];
  std::size_t (*size)(Zone* zone, const void* block);
  void* (*malloc)(Zone* zone, std::size_t size);
  void* (*calloc)(Zone* zone, std::size_t count, std::size_t size);
  void* (*valloc)(Zone* zone, std::size_t size);
  void (*free)(Zone* zone, void* block);
  void* (*realloc)(Zone* zone, void* block, std::size_t size);
  void (*destroy)(Zone* zone);
  const char* name;
  unsigned (*batch_malloc)(Zone* zone, std::size_t size, void** blocks, unsigned count);
  void (*batch_free)(Zone* zone, void** blocks, unsigned count);
  struct Introspection* introspect;
  unsigned version;
  void* (*memalign)(Zone* zone, std::size_t alignment, std::size_t size);
  void (*free_definite_size)(Zone* zone, void* block, std::size_t size);
  std::size_t (*pressure_relief)(Zone* zone, std::size_t goal);
  int (*claimed_address)(Zone* zone, void* address);
};
struct Range {
  std::uint64_t address;
  std::uint64_t bytes;
};
struct Statistics {
  unsigned blocks_in_use;
  std::size_t size_in_use;
  std::size_t max_size_in_use;
  std::size_t size_allocated;
};
struct Introspection {
  using Recorder = void (*)(std::uint32_t task, void* context, unsigned kinds, Range* ranges,
                            unsigned count);
  int (*enumerator)(std::uint32_t task, void* context, unsigned kinds, std::uint64_t zone,
                    void* reader, Recorder recorder);
  std::size_t (*good_size)(Zone* zone, std::size_t size);
  int (*check)(Zone* zone);
  void (*print)(Zone* zone, int verbose);
  void (*log)(Zone* zone, void* address);
  void (*force_lock)(Zone* zone);
  void (*force_unlock)(Zone* zone);
  void (*statistics)(Zone* zone, Statistics* statistics);
  int (*zone_locked)(Zone* zone);
  void* discharging[4];
  void (*reinit_lock)(Zone* zone);
};

// What a library imports by this name; null if nothing stands in for it.
[[nodiscard]] void* find(std::string_view name);

extern std::uint32_t own_task;
// The default zone.
[[nodiscard]] Zone* first_zone();

// Around all that a thread does.
void begin_thread();
void end_thread();
// pthread_create, with these.
int start(unsigned long* thread, void* (*function)(void*), void* argument);

}  // namespace libsystem
