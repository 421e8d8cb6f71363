// Variables of each thread, reached without a call, and usable before any constructor.
#pragma once

#include <cstdint>

#include "allod/base/cpu.hpp"

#if defined(_WIN32) && !defined(__clang__)

// Before gcc 16, thread-local variables of Windows are emulated: each access is a call, which
// allocates at the first. So these are cells of the section that the loader copies for each thread,
// and assembly reads their addresses.

extern "C" unsigned _tls_index;  // NOLINT(bugprone-reserved-identifier)

namespace allod {

namespace {

// Lays out the cell of a variable in a section of its own, which the linker keeps once, and sorts
// between the C runtime's. (gcc ignores the attribute for a section within templates.) An internal
// function, as these lie in .text; never called.
template <class Variable>
[[gnu::noinline, gnu::used]] void lay_out_thread_cell() noexcept {
  __asm__ volatile(
      ".section .tls$M%c0,\"w\"\n\t"
      ".linkonce same_size\n\t"
      ".globl %c0.cell\n\t"
      ".balign 8\n"
      "%c0.cell:\n\t"
      ".quad %c1\n\t"
      ".fill %c2, 1, 0\n\t"
      ".text"
      :
      : "i"(&Variable::name), "i"(Variable::kFirst),
        "i"(Variable::kBytes > 8 ? Variable::kBytes - 8 : 0));
}

}  // namespace

template <class Variable, class T>
class ThreadCell {
 public:
  static constexpr std::size_t kBytes = sizeof(T);
  static inline char name = 0;  // lends its own to the cell

  constexpr ThreadCell() noexcept = default;
  ThreadCell(const ThreadCell&) = delete;
  ThreadCell& operator=(const ThreadCell&) = delete;

  ALLOD_INLINE operator T&() const noexcept { return *place(); }
  ALLOD_INLINE T* operator&() const noexcept { return place(); }
  ALLOD_INLINE T operator->() const noexcept { return *place(); }
  ALLOD_INLINE T operator=(T value) const noexcept { return *place() = value; }

 protected:
  [[nodiscard]] static ALLOD_INLINE T* place() noexcept {
    T* at;
    std::uint64_t index;
    __asm__(
        "movq %%gs:0x58, %0\n\t"
        "movl _tls_index(%%rip), %k1\n\t"
        "movq (%0,%1,8), %0\n\t"
        "leaq %c2.cell@secrel32(%0), %0"
        : "=&r"(at), "=&r"(index)
        : "i"(&Variable::name), "i"(&lay_out_thread_cell<Variable>));
    return at;
  }
};

template <class Owner, class T, T kValue>
class ThreadVariable : public ThreadCell<ThreadVariable<Owner, T, kValue>, T> {
 public:
  static constexpr T kFirst = kValue;
  using ThreadCell<ThreadVariable, T>::operator=;
};
template <class Owner, class T>
class ThreadZeros : public ThreadCell<ThreadZeros<Owner, T>, T> {
 public:
  static constexpr int kFirst = 0;
};

}  // namespace allod

#elif defined(__APPLE__)

#include "allod/base/darwin/thread_cells.hpp"

#endif

// ALLOD_THREAD_LOCAL declares a static member of a class: a pointer, a number or a bool, and its
// first value. ALLOD_THREAD_LOCAL_ZEROS does the same for a class whose first value is all zeros.
#if (defined(_WIN32) && !defined(__clang__)) || defined(__APPLE__)

#define ALLOD_THREAD_LOCAL(Type, name, ...) \
  struct OwnerOf_##name {};                 \
  static constexpr ::allod::ThreadVariable<OwnerOf_##name, Type, __VA_ARGS__> name {}
#define ALLOD_THREAD_LOCAL_ZEROS(Type, name) \
  struct OwnerOf_##name {};                  \
  static constexpr ::allod::ThreadZeros<OwnerOf_##name, Type> name {}

#else

#define ALLOD_THREAD_LOCAL(Type, name, ...) \
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Type name = __VA_ARGS__
#define ALLOD_THREAD_LOCAL_ZEROS(Type, name) \
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Type name

#endif
