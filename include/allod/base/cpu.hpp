// Conditionals on compiler and processor. Everything else that depends on the processor is in
// base/processor/ and in os/linux/, which say by constants and macros what there is on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>

#define ALLOD_INLINE inline __attribute__((always_inline))
#define ALLOD_COLD __attribute__((noinline, cold))
// For functions that every program runs: placed side by side, so that few pages of the library
// become resident.
#define ALLOD_HOT __attribute__((hot))
#define ALLOD_NOINLINE __attribute__((noinline))
// For functions that take the place of a C++ runtime's. macOS lets only weak ones do that.
#if defined(_WIN32)
#define ALLOD_REPLACES
#elif defined(__APPLE__)
#define ALLOD_REPLACES __attribute__((weak, visibility("default")))
#else
#define ALLOD_REPLACES __attribute__((visibility("default")))
#endif

#include "allod/base/processor/features.hpp"

#if defined(__i386__)
#include "allod/base/processor/i386.hpp"
#elif defined(__arm__)
#include "allod/base/processor/arm.hpp"
#elif defined(__riscv) && __riscv_xlen == 64
#include "allod/base/processor/riscv64.hpp"
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#include "allod/base/processor/ppc64.hpp"
#elif defined(__s390x__)
#include "allod/base/processor/s390x.hpp"
#elif !defined(__x86_64__) && !defined(__aarch64__)
#error "Allod supports x86-64, arm64, riscv64, ppc64le, s390x, and 32-bit x86 and ARM."
#endif

namespace allod {

inline constexpr unsigned kCacheLine = 64;

// Hides the pointer's origin from the compiler, and forces it into a register.
template <class T>
[[nodiscard]] ALLOD_INLINE T* opaque(T* pointer) noexcept {
  __asm__("" : "+r"(pointer));
  return pointer;
}
// The same for a number.
[[nodiscard]] ALLOD_INLINE std::size_t opaque(std::size_t number) noexcept {
  __asm__("" : "+r"(number));
  return number;
}

#if defined(__x86_64__)

// Significant bits of user-space addresses, at most.
inline constexpr unsigned kAddressBits = 47;
// Whether thread-local variables of libraries lie above the thread pointer, less its bias.
inline constexpr bool kTlsIsAbove = false;
inline constexpr std::size_t kThreadPointerBias = 0;

// Hints to the processor that this is a spin-wait loop.
ALLOD_INLINE void cpu_relax() noexcept { __builtin_ia32_pause(); }

// A system call that never touches errno, for code without its own thread control block. Returns
// the kernel's result: -errno on failure.
ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

#elif defined(__aarch64__)

inline constexpr unsigned kAddressBits = 48;
inline constexpr bool kTlsIsAbove = true;
inline constexpr std::size_t kThreadPointerBias = 0;

// isb, not yield: on current cores, only isb stalls long enough.
ALLOD_INLINE void cpu_relax() noexcept { __asm__ volatile("isb" ::: "memory"); }

ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}

#endif

#if !defined(_WIN32) && !defined(__APPLE__)
// The same for all accesses to thread-local variables.
[[nodiscard]] ALLOD_INLINE void* thread_pointer() noexcept {
#if defined(__powerpc64__)
  void* pointer;
  __asm__("mr %0, 13" : "=r"(pointer));
  return pointer;
#else
  return __builtin_thread_pointer();
#endif
}
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ALLOD_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define ALLOD_TSAN 1
#endif

#ifdef ALLOD_TSAN
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// For fast paths, since compilers spend an extra instruction on atomic accesses: a relaxed load,
// and value < bound with an acquire load. On arm64 both are plain loads to the compiler. The
// processor does not tear them, but may reorder them.
template <class T>
[[nodiscard]] ALLOD_INLINE T load_relaxed(const std::atomic<T>& cell) noexcept {
#if defined(__aarch64__) && !defined(ALLOD_TSAN)
  static_assert(sizeof cell == sizeof(T) && std::atomic<T>::is_always_lock_free);
  return *reinterpret_cast<const T*>(&cell);
#else
  return cell.load(std::memory_order_relaxed);
#endif
}
[[nodiscard]] ALLOD_INLINE bool is_below(std::size_t value,
                                         const std::atomic<std::size_t>& bound) noexcept {
#if defined(__x86_64__) && !defined(ALLOD_TSAN)
  bool below;
  __asm__("cmpq %2, %1" : "=@ccb"(below) : "r"(value), "m"(bound) : "memory");
  return below;
#else
  return value < load_relaxed(bound);
#endif
}
// A load, relaxed or acquire, and a comparison, in one instruction where possible.
template <std::memory_order kOrder = std::memory_order_relaxed, class T>
[[nodiscard]] ALLOD_INLINE bool holds(const std::atomic<T>& cell,
                                      std::type_identity_t<T> value) noexcept {
#if defined(__x86_64__) && !defined(ALLOD_TSAN)
  bool equal;
  if constexpr (sizeof cell == 8) {
    __asm__ volatile("cmpq %1, %2" : "=@cce"(equal) : "re"(value), "m"(cell) : "memory");
  } else if constexpr (sizeof cell == 4) {
    __asm__ volatile("cmpl %1, %2" : "=@cce"(equal) : "ri"(value), "m"(cell) : "memory");
  } else {
    static_assert(sizeof cell == 1);
    __asm__ volatile("cmpb %1, %2" : "=@cce"(equal) : "qi"(value), "m"(cell) : "memory");
  }
  return equal;
#else
  if constexpr (kOrder == std::memory_order_relaxed) return load_relaxed(cell) == value;
  return cell.load(kOrder) == value;
#endif
}

}  // namespace allod
