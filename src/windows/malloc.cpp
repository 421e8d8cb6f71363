// The C runtime's allocation functions in a program that links Allod statically. Blocks that the
// runtime allocates for itself, such as those of _strdup, go back to it.
#include "windows/runtime.hpp"

using allod::portable::Process;
using allod::portable::SetErrno;
using allod::windows::RuntimeFunctions;
namespace portable = allod::portable;
namespace windows = allod::windows;

namespace {

constinit RuntimeFunctions runtime;

// The runtime is loaded before the program is.
void find_runtime(void*, std::uint32_t reason, void*) noexcept {
  constexpr std::uint32_t kProcessBegins = 1;
  if (reason != kProcessBegins) return;
  const allod::os::LastError kept;
  for (const char* const name : {"msvcrt.dll", "ucrtbase.dll"}) {
    void* const module = allod_win_module(name);
    if (module != nullptr) return runtime.find_in(module);
  }
}

[[gnu::section(".CRT$XLW"), gnu::used]] void (*const at_start)(void*, std::uint32_t,
                                                               void*) noexcept = &find_runtime;

}  // namespace

// By other names than those of the headers, which import these functions.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* allod_crt_malloc(std::size_t size) noexcept __asm__("malloc");
void* allod_crt_calloc(std::size_t count, std::size_t size) noexcept __asm__("calloc");
void* allod_crt_realloc(void* block, std::size_t size) noexcept __asm__("realloc");
void allod_crt_free(void* block) noexcept __asm__("free");
std::size_t allod_crt_size(void* block) noexcept __asm__("_msize");
void* allod_crt_expand(void* block, std::size_t size) noexcept __asm__("_expand");
void* allod_crt_recalloc(void* block, std::size_t count, std::size_t size) noexcept
    __asm__("_recalloc");
void* allod_crt_aligned_malloc(std::size_t size, std::size_t alignment) noexcept
    __asm__("_aligned_malloc");
void* allod_crt_aligned_realloc(void* block, std::size_t size, std::size_t alignment) noexcept
    __asm__("_aligned_realloc");
void allod_crt_aligned_free(void* block) noexcept __asm__("_aligned_free");

void* allod_crt_malloc(std::size_t size) noexcept { return Process::allocate<SetErrno>(size); }
void* allod_crt_calloc(std::size_t count, std::size_t size) noexcept {
  return portable::allocate_zeroed(count, size);
}
void* allod_crt_realloc(void* block, std::size_t size) noexcept {
  return portable::reallocate(block, size, runtime.plain);
}
void allod_crt_free(void* block) noexcept { portable::release(block, runtime.plain); }
std::size_t allod_crt_size(void* block) noexcept {
  return portable::usable_size(block, runtime.plain);
}
void* allod_crt_expand(void* block, std::size_t size) noexcept {
  return windows::expand(block, size, runtime);
}
void* allod_crt_recalloc(void* block, std::size_t count, std::size_t size) noexcept {
  return windows::recalloc(block, count, size, runtime);
}
void* allod_crt_aligned_malloc(std::size_t size, std::size_t alignment) noexcept {
  return windows::aligned_malloc(size, alignment);
}
void* allod_crt_aligned_realloc(void* block, std::size_t size, std::size_t alignment) noexcept {
  return windows::aligned_realloc(block, size, alignment, runtime);
}
void allod_crt_aligned_free(void* block) noexcept { portable::release(block, runtime.aligned); }
// NOLINTEND(readability-identifier-naming)
}

// What code that was told of an import calls through.
#define ALLOD_IMPORT(name) \
  ".globl __imp_" name     \
  "\n"                     \
  "__imp_" name            \
  ":\n\t"                  \
  ".quad " name "\n\t"

__asm__(
    ".data\n\t"
    ".balign 8\n"
    // clang-format off
    ALLOD_IMPORT("malloc")
    ALLOD_IMPORT("calloc")
    ALLOD_IMPORT("realloc")
    ALLOD_IMPORT("free")
    ALLOD_IMPORT("_msize")
    ALLOD_IMPORT("_expand")
    ALLOD_IMPORT("_recalloc")
    ALLOD_IMPORT("_aligned_malloc")
    ALLOD_IMPORT("_aligned_realloc")
    ALLOD_IMPORT("_aligned_free")
    // clang-format on
    ".text");
