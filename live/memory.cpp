#include "memory.hpp"

#include <event2/event.h>
#include <setjmp.h>
#include <stdio.h>

#include <atomic>

#include "library.hpp"

// libevent's stderr, see cmake/AllodLive.cmake. Null, so nothing is logged.
extern "C" {
extern FILE* allod_live_no_stderr;
FILE* allod_live_no_stderr = nullptr;
}

namespace allod::live {

namespace {

void say_nothing(int, const char*) noexcept {}
jmp_buf before_events;
// libevent's fatal callback must not return.
[[noreturn]] void give_up(int) noexcept { longjmp(before_events, 1); }

constinit std::atomic<allod_heap_t*> own_heap{nullptr};
}  // namespace

bool open_memory() noexcept {
  if (own_heap.load() != nullptr) return true;
  if (!has_library()) return false;
  allod_heap_options_t options{};
  options.struct_size = sizeof options;
  options.name = "live page";
  options.unseen = 1;
  allod_heap_t* const heap = allod_heap_new_ex(&options);
  if (heap == nullptr) return false;
  allod_heap_t* none = nullptr;
  if (!own_heap.compare_exchange_strong(none, heap)) {
    allod_heap_delete(heap);
    return true;
  }
  event_set_mem_functions(&allocate, &resize, &release);
  event_set_log_callback(&say_nothing);
  event_set_fatal_callback(&give_up);
  return true;
}

bool with_events(void (*work)(void*) noexcept, void* context) noexcept {
  if (setjmp(before_events) != 0) return false;
  work(context);
  return true;
}

void drop_memory() noexcept { own_heap.store(nullptr); }

void* allocate(size_t size) noexcept { return allod_heap_malloc(own_heap.load(), size); }
void* resize(void* block, size_t size) noexcept {
  return allod_heap_realloc(own_heap.load(), block, size);
}
void release(void* block) noexcept {
  if (block != nullptr) allod_heap_free(own_heap.load(), block);
}

size_t held_bytes() noexcept {
  allod_heap_stats_t figures;
  allod_heap_t* const heap = own_heap.load();
  if (heap == nullptr || allod_heap_stats_get(heap, &figures, sizeof figures) != 0) return 0;
  return figures.held;
}

}  // namespace allod::live
