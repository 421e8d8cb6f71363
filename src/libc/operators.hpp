// Which forms of operator new and delete are the library's own.
//
// A program may replace some of them only. Those that it leaves out have to do their work by those
// that it has: an array form by the single one, a nothrow form by the one that throws, and one that
// is told a size or has no use for exceptions by the one that is not ([new.delete] in the
// standard). These here are the forms that others are made of.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

// Which function has the name in this process, and which one is ours.
#define ALLOD_OPERATOR(symbol) \
  ".set allod_own" symbol ", " symbol "\n\t.quad " symbol ", allod_own" symbol "\n\t"

// In assembly, because a compiler knows two names to be two functions.
__asm__(
    ".pushsection .data.rel.ro,\"aw\",%progbits\n\t"
    ".balign 8\n\t"
    ".globl allod_operators\n\t"
    ".hidden allod_operators\n"
    "allod_operators:\n\t"
    // clang-format off
    ALLOD_OPERATOR("_Znwm")
    ALLOD_OPERATOR("_Znam")
    ALLOD_OPERATOR("_ZnwmSt11align_val_t")
    ALLOD_OPERATOR("_ZnamSt11align_val_t")
    ALLOD_OPERATOR("_ZdlPv")
    ALLOD_OPERATOR("_ZdaPv")
    ALLOD_OPERATOR("_ZdlPvSt11align_val_t")
    ALLOD_OPERATOR("_ZdaPvSt11align_val_t")
    // clang-format on
    ".popsection");

#undef ALLOD_OPERATOR

namespace allod::operators {

struct Entry {
  void* in_force;
  void* own;
};
[[gnu::visibility("hidden")]] extern const Entry kOperators[] __asm__("allod_operators");

template <class Function, int kPlace>
struct Form {
  [[nodiscard, gnu::always_inline]] static inline bool is_replaced() noexcept {
    return __builtin_expect(kOperators[kPlace].in_force != kOperators[kPlace].own, 0);
  }
  [[nodiscard]] static Function* in_force() noexcept {
    return reinterpret_cast<Function*>(kOperators[kPlace].in_force);
  }
};
using New = Form<void*(std::size_t), 0>;
using NewArray = Form<void*(std::size_t), 1>;
using NewAligned = Form<void*(std::size_t, std::align_val_t), 2>;
using NewArrayAligned = Form<void*(std::size_t, std::align_val_t), 3>;
using Delete = Form<void(void*) noexcept, 4>;
using DeleteArray = Form<void(void*) noexcept, 5>;
using DeleteAligned = Form<void(void*, std::align_val_t) noexcept, 6>;
using DeleteArrayAligned = Form<void(void*, std::align_val_t) noexcept, 7>;

template <class... Forms>
[[nodiscard, gnu::always_inline]] inline bool are_replaced() noexcept {
  return (Forms::is_replaced() || ...);
}

// Up to where in the page map forms that are made of others look for a block before they ask
// whether they may: nowhere, until it is known that no form of delete is replaced, nor when the map
// has become a window or was narrowed.
extern std::atomic<std::size_t> slices_at_once;

}  // namespace allod::operators
