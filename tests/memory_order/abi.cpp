// In place of ThreadSanitizer's runtime: what the compiler calls before plain accesses and for
// atomic ones. Compiled without instrumentation.
#include <cstdint>

#include "explore.hpp"

extern "C" char __ehdr_start;

namespace order {
namespace {

Site site_of(void* behind_call) {
  return reinterpret_cast<std::uintptr_t>(behind_call) -
         reinterpret_cast<std::uintptr_t>(&__ehdr_start) - 1;
}
Order order_of(int order) { return static_cast<Order>(order); }

template <class T>
Step step_at(Kind kind, const volatile T* cell, int order, const char* operation, void* behind) {
  Step step{};
  step.kind = kind;
  step.bytes = sizeof(T);
  step.order = step.failure = order_of(order);
  step.address = reinterpret_cast<std::uintptr_t>(cell);
  step.operation = operation;
  step.site = site_of(behind);
  return step;
}

template <class T, class Function>
T modify(volatile T* cell, T operand, int order, const char* operation, void* behind, Function) {
  Step one = step_at(Kind::modify, cell, order, operation, behind);
  one.operand = static_cast<std::uint64_t>(operand);
  one.function = [](std::uint64_t old, std::uint64_t by) {
    return static_cast<std::uint64_t>(
        static_cast<T>(Function{}(static_cast<T>(old), static_cast<T>(by))));
  };
  return static_cast<T>(step(one));
}

template <class T>
bool compare(volatile T* cell, T* expected, T desired, int order, int failure, void* behind) {
  Step one = step_at(Kind::compare, cell, order, "compare_exchange", behind);
  one.failure = order_of(failure);
  one.operand = static_cast<std::uint64_t>(desired);
  const T wanted = *expected;
  one.expected = static_cast<std::uint64_t>(wanted);
  const auto old = static_cast<T>(step(one));
  if (old == wanted) return true;
  *expected = old;
  return false;
}

}  // namespace
}  // namespace order

using namespace order;

#define BEHIND __builtin_return_address(0)

#define MODIFY(bits, name, expression)                                                      \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* cell,      \
                                                   std::uint##bits##_t operand, int o) {    \
    return modify(cell, operand, o, #name, BEHIND,                                          \
                  [](std::uint##bits##_t a, std::uint##bits##_t b) { return expression; }); \
  }

#define COMPARE(bits, strength)                                          \
  int __tsan_atomic##bits##_compare_exchange_##strength(                 \
      volatile std::uint##bits##_t* cell, std::uint##bits##_t* expected, \
      std::uint##bits##_t desired, int o, int failure) {                 \
    return compare(cell, expected, desired, o, failure, BEHIND) ? 1 : 0; \
  }

#define ATOMIC(bits)                                                                              \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* cell,        \
                                                 int o) {                                         \
    return static_cast<std::uint##bits##_t>(step(step_at(Kind::load, cell, o, "load", BEHIND)));  \
  }                                                                                               \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* cell, std::uint##bits##_t value, \
                                   int o) {                                                       \
    Step one = step_at(Kind::store, cell, o, "store", BEHIND);                                    \
    one.operand = value;                                                                          \
    step(one);                                                                                    \
  }                                                                                               \
  MODIFY(bits, exchange, (static_cast<void>(a), b))                                               \
  MODIFY(bits, fetch_add, a + b)                                                                  \
  MODIFY(bits, fetch_sub, a - b)                                                                  \
  MODIFY(bits, fetch_and, a& b)                                                                   \
  MODIFY(bits, fetch_or, a | b)                                                                   \
  MODIFY(bits, fetch_xor, a ^ b)                                                                  \
  COMPARE(bits, strong)                                                                           \
  COMPARE(bits, weak)

#define PLAIN(bytes)                                                                 \
  void __tsan_read##bytes(void* address) {                                           \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, false, site_of(BEHIND)); \
  }                                                                                  \
  void __tsan_write##bytes(void* address) {                                          \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, true, site_of(BEHIND));  \
  }                                                                                  \
  void __tsan_unaligned_read##bytes(void* address) {                                 \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, false, site_of(BEHIND)); \
  }                                                                                  \
  void __tsan_unaligned_write##bytes(void* address) {                                \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, true, site_of(BEHIND));  \
  }                                                                                  \
  void __tsan_volatile_read##bytes(void* address) {                                  \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, false, site_of(BEHIND)); \
  }                                                                                  \
  void __tsan_volatile_write##bytes(void* address) {                                 \
    plain(reinterpret_cast<std::uintptr_t>(address), bytes, true, site_of(BEHIND));  \
  }

extern "C" {

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int o) {
  Step one{};
  one.kind = Kind::fence;
  one.order = one.failure = order_of(o);
  one.operation = "fence";
  one.site = site_of(BEHIND);
  step(one);
}
// Of no effect on other threads.
void __tsan_atomic_signal_fence(int) {}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void* address, std::size_t bytes) {
  plain(reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(bytes), false,
        site_of(BEHIND));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  plain(reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(bytes), true,
        site_of(BEHIND));
}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

}  // extern "C"
