// Runs a test program of Linux on the library for macOS: `HOST CASE...`, with the library's path in
// TEST_LIBRARY. The program's calls of allod.h go to the library, and those that dyld would
// interpose to what the library names for them.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "libsystem.hpp"
#include "mach_o.hpp"

extern char** environ;
// The program's, renamed.
extern "C" int program_main(int argc, char** argv);

struct Forward {
  const char* name;
  void** place;
};
extern "C" {
extern const Forward __start_forwards[];
extern const Forward __stop_forwards[];
}

// A function that jumps to where its place says.
#if defined(__aarch64__)
#define JUMP_TO(place)                                 \
  "adrp x16, " place "\n\tldr x16, [x16, :lo12:" place \
  "]\n"                                                \
  "\tbr x16\n"
#else
#define JUMP_TO(place) "jmpq *" place "(%rip)\n"
#endif
#define FORWARD(name)                                                     \
  extern "C" {                                                            \
  void* place_of_##name;                                                  \
  }                                                                       \
  __asm__(".globl " #name "\n" #name ":\n\t" JUMP_TO("place_of_" #name)); \
  [[gnu::used, gnu::section("forwards")]] static Forward name##_is_at{#name, &place_of_##name};

FORWARD(allod_malloc)
FORWARD(allod_calloc)
FORWARD(allod_realloc)
FORWARD(allod_free)
FORWARD(allod_aligned_alloc)
FORWARD(allod_posix_memalign)
FORWARD(allod_malloc_usable_size)
FORWARD(allod_malloc_trim)
FORWARD(allod_stats_get)
FORWARD(allod_option_set)
FORWARD(allod_version)
FORWARD(allod_check)
FORWARD(allod_heap_new_ex)
FORWARD(allod_heap_destroy)
FORWARD(allod_heap_malloc)
FORWARD(allod_heap_calloc)
FORWARD(allod_heap_free)
FORWARD(allod_heap_contains)
FORWARD(allod_heap_walk)
FORWARD(allod_heap_name)
FORWARD(allod_heap_stats_get)
// What dyld would interpose.
FORWARD(interposed_malloc)
FORWARD(interposed_free)
FORWARD(interposed_calloc)
FORWARD(interposed_realloc)
FORWARD(interposed_reallocf)
FORWARD(interposed_valloc)
FORWARD(interposed_aligned_alloc)
FORWARD(interposed_posix_memalign)
FORWARD(interposed_malloc_size)
FORWARD(interposed_malloc_good_size)
// Under their own names, they would take the place of this program's.
FORWARD(library__Znwm)
FORWARD(library__ZdlPv)
FORWARD(library__ZnwmSt11align_val_t)
FORWARD(library__ZdlPvSt11align_val_t)
FORWARD(library__ZnwmRKSt9nothrow_t)

namespace {

constexpr std::string_view kInterposed = "interposed_";
constexpr std::string_view kLibrary = "library_";

void* find(const MachO& library, std::string_view name) {
  if (name.starts_with(kLibrary)) name.remove_prefix(kLibrary.size());
  if (!name.starts_with(kInterposed)) return library.symbol(name);
  name.remove_prefix(kInterposed.size());
  for (const MachO::Pair& pair : library.interposed()) {
    if (pair.theirs == libsystem::find(name)) return pair.ours;
  }
  return nullptr;
}

}  // namespace

extern "C" int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t*,
                                     void* (*function)(void*), void* argument) {
  return libsystem::start(thread, function, argument);
}

int main(int argc, char** argv) {
  libsystem::begin_thread();
  const MachO library{std::getenv("TEST_LIBRARY"), &libsystem::find};
  for (const Forward* one = __start_forwards; one != __stop_forwards; ++one) {
    *one->place = find(library, one->name);
    if (*one->place != nullptr) continue;
    std::fprintf(stderr, "the library has no %s\n", one->name);
    return 2;
  }
  library.run_constructors(argc, argv, environ);
  return program_main(argc, argv);
}
