#include "program.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace security {
namespace {

struct Memory {
  Byte* begin;
  std::size_t size;
};

// Not on the heap, which is what may be harmed.
Memory g_owned[1U << 18U];
std::size_t g_count = 0;
bool g_defective = false;
bool g_harmed = false;

// Whole lines, so that an allocator's unfinished one does not swallow a mark.
void mark(const char* name, const char* what = "") {
  char line[256];
  std::size_t length = 0;
  for (const char* part : {"\n@@", name, " ", what, "\n"}) {
    const std::size_t bytes = std::strlen(part);
    std::memcpy(line + length, part, bytes);
    length += bytes;
  }
  if (write(STDERR_FILENO, line, length) != static_cast<ssize_t>(length)) _exit(3);
}

// Never a byte that a defect writes.
Byte pattern_of(const Byte* begin) {
  return static_cast<Byte>(0x10U | ((reinterpret_cast<std::uintptr_t>(begin) >> 4U) & 0xfU));
}

bool overlap(const Memory& one, const Memory& other) {
  return one.begin < other.begin + other.size && other.begin < one.begin + one.size;
}

Memory* find(const Byte* begin) {
  Memory* const end = g_owned + g_count;
  return std::find_if(g_owned, end, [&](const Memory& each) { return each.begin == begin; });
}

Byte* own_new(void* block, std::size_t size) {
  if (block == nullptr) {
    mark("out-of-memory");
    _exit(3);
  }
  own(static_cast<Byte*>(block), size);
  return static_cast<Byte*>(block);
}

}  // namespace

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(3);
}
void say_who_serves() {
  Dl_info found;
  const bool known = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0;
  say("\n@@from ");
  say(known ? found.dli_fname : "unknown");
  say("\n");
}

void before() {
  g_defective = true;
  mark("before");
}
void after() { mark("after"); }
void effect(const char* what) {
  if (!g_harmed) mark("effect", what);
  g_harmed = true;
}

void own(Byte* begin, std::size_t size) {
  const Memory memory{begin, size};
  if (g_defective && std::any_of(g_owned, g_owned + g_count,
                                 [&](const Memory& each) { return overlap(memory, each); })) {
    effect("memory that was in use was handed out");
  }
  if (g_count == std::size(g_owned)) _exit(3);
  g_owned[g_count++] = memory;
  std::memset(begin, pattern_of(begin), size);
}

void disown(const Byte* begin) {
  Memory* const found = find(begin);
  if (found != g_owned + g_count) *found = g_owned[--g_count];
}

Byte* take(std::size_t size) { return own_new(opaque(malloc(size)), size); }

Byte* take_zeroed(std::size_t size) {
  Byte* const block = opaque(static_cast<Byte*>(calloc(1, size)));
  if (block != nullptr && std::any_of(block, block + size, [](Byte each) { return each != 0; })) {
    effect("calloc returned memory that is not zero");
  }
  return own_new(block, size);
}

void give_back(Byte* block) {
  disown(block);
  free(opaque(block));
}

Byte* take_a_heap(std::size_t size) {
  const std::size_t first = g_count;
  for (std::size_t bytes = 0; bytes < kHeapBytes; bytes += size) take(size);
  Memory* const begin = g_owned + first;
  Memory* const end = g_owned + g_count;
  Memory* const middle = begin + (end - begin) / 2;
  std::nth_element(begin, middle, end,
                   [](const Memory& one, const Memory& other) { return one.begin < other.begin; });
  return middle->begin;
}

void give_back_all() {
  // The list is the program's own, so that it ends whatever has happened to the heap.
  const std::size_t count = g_count;
  g_count = 0;
  for (std::size_t i = 0; i < count; ++i) free(opaque(g_owned[i].begin));
}

bool take_until_reused(const Byte* address, std::size_t size) {
  for (std::size_t i = 0; i < kPatience; ++i) {
    if (take(size) == address) return true;
  }
  return false;
}

void go_on(std::size_t size) {
  constexpr std::size_t kMostBytes = 32U << 20U;
  constexpr std::size_t kMost = 256;
  const std::size_t count = std::clamp<std::size_t>(kMostBytes / (size + 1), 1, kMost);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 4 == 3) {
      take_zeroed(size);
    } else {
      take(size);
    }
  }
}

void verify() {
  for (std::size_t i = 0; i < g_count; ++i) {
    const Memory& each = g_owned[i];
    const Byte wanted = pattern_of(each.begin);
    if (std::any_of(each.begin, each.begin + each.size,
                    [&](Byte byte) { return byte != wanted; })) {
      return effect("memory that was in use has changed");
    }
  }
}

std::size_t full_size(std::size_t size) {
  for (int tries = 0; tries < 4; ++tries) {
    void* const block = opaque(malloc(size));
    const std::size_t usable = malloc_usable_size(block);
    free(block);
    if (usable <= size) break;
    size = usable;
  }
  return size;
}

void on_another_thread(void (*function)(Byte*), Byte* argument) {
  struct Call {
    void (*function)(Byte*);
    Byte* argument;
  } call{function, argument};
  pthread_t thread;
  const auto body = [](void* given) -> void* {
    const Call& wanted = *static_cast<Call*>(given);
    wanted.function(wanted.argument);
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, body, &call) != 0) _exit(3);
  pthread_join(thread, nullptr);
}

}  // namespace security
