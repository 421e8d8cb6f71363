// Announces blocks to memory checkers: AddressSanitizer at compile time, valgrind at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allod/base/cpu.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOD_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ALLOD_ASAN 1
#endif

#ifdef ALLOD_ASAN
extern "C" void __asan_poison_memory_region(void const volatile* address, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(void const volatile* address, std::size_t bytes);
#endif

namespace allod {

#ifdef ALLOD_ASAN
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// Valgrind's client requests, from its manual: instructions without effect on a processor, which
// valgrind recognises.
enum class ValgrindRequest : std::uint64_t {
  block_allocated = 0x1301,
  block_freed = 0x1302,
  no_access = 0x4d430000,  // 'M', 'C': Memcheck's
  undefined = 0x4d430001,
  defined = 0x4d430002,
};

ALLOD_INLINE std::uint64_t ask_valgrind(ValgrindRequest request, std::uint64_t a = 0,
                                        std::uint64_t b = 0, std::uint64_t c = 0,
                                        std::uint64_t d = 0) noexcept {
  [[maybe_unused]] volatile std::uint64_t words[6] = {
      static_cast<std::uint64_t>(request), a, b, c, d, 0};
  std::uint64_t result = 0;
#if defined(__x86_64__)
  __asm__ volatile(
      "rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"
      "xchgq %%rbx, %%rbx"
      : "=d"(result)
      : "a"(&words[0]), "0"(result)
      : "cc", "memory");
#elif defined(__aarch64__)
  register std::uint64_t x3 __asm__("x3") = result;
  register volatile std::uint64_t* x4 __asm__("x4") = &words[0];
  __asm__ volatile(
      "ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\t"
      "orr x10, x10, x10"
      : "+r"(x3)
      : "r"(x4)
      : "cc", "memory", "x12");
  result = x3;
#endif
  return result;
}

// Whether Memcheck runs. Other tools count or time accesses, and should see them unchanged. Only
// Memcheck answers this request, with -1.
[[nodiscard]] inline bool memcheck_watches() noexcept {
  return ask_valgrind(ValgrindRequest::defined) != 0;
}

// The memory holds no block; accesses are errors.
inline void announce_no_access(const void* memory, std::size_t bytes) noexcept {
#ifdef ALLOD_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
  ask_valgrind(ValgrindRequest::no_access, reinterpret_cast<std::uintptr_t>(memory), bytes);
}
// The memory is ordinary again, before it returns to the system.
inline void announce_plain(const void* memory, std::size_t bytes) noexcept {
#ifdef ALLOD_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
  ask_valgrind(ValgrindRequest::undefined, reinterpret_cast<std::uintptr_t>(memory), bytes);
}
inline void announce_block(const void* block, std::size_t bytes) noexcept {
#ifdef ALLOD_ASAN
  __asan_unpoison_memory_region(block, bytes);
#endif
  ask_valgrind(ValgrindRequest::block_allocated, reinterpret_cast<std::uintptr_t>(block), bytes);
}
// The whole block may be read, beyond the requested size.
inline void announce_readable(const void* block, std::size_t bytes) noexcept {
#ifdef ALLOD_ASAN
  __asan_unpoison_memory_region(block, bytes);
#endif
  ask_valgrind(ValgrindRequest::defined, reinterpret_cast<std::uintptr_t>(block), bytes);
}
// `bytes`: all that the block occupies.
inline void announce_freed(const void* block, std::size_t bytes) noexcept {
  ask_valgrind(ValgrindRequest::block_freed, reinterpret_cast<std::uintptr_t>(block));
  announce_no_access(block, bytes);
}

}  // namespace allod
