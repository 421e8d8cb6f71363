// Which forms of operator new and delete are Allod's, and which the program has replaced.
//
// A program may replace only some forms. By [new.delete] in the standard, the others must then call
// the replaced ones: array forms call the single form, nothrow forms the throwing one, sized forms
// the unsized one. The forms below are those that others call.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

#include "allod/base/processor/features.hpp"

// A pair: the function that has this name in the process, and ours.
#define ALLOD_OPERATOR(symbol)                                                                 \
  ".set allod_own" symbol ", " symbol "\n\t" ALLOD_ASM_ADDRESS " " symbol ", allod_own" symbol \
  "\n\t"

// Assembly, because a compiler assumes that two names are two functions.
__asm__(
    ".pushsection .data.rel.ro,\"aw\",%progbits\n\t"
    ".balign 8\n\t"
    ".globl allod_operators\n\t"
    ".hidden allod_operators\n"
    "allod_operators:\n\t"
    // clang-format off
    ALLOD_OPERATOR("_Znw" ALLOD_SIZE_LETTER)
    ALLOD_OPERATOR("_Zna" ALLOD_SIZE_LETTER)
    ALLOD_OPERATOR("_Znw" ALLOD_SIZE_LETTER "St11align_val_t")
    ALLOD_OPERATOR("_Zna" ALLOD_SIZE_LETTER "St11align_val_t")
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

// The bound of the page map below which derived forms of delete free a block before they check for
// replaced forms. Zero until all forms of delete are known to be Allod's, and after the map was
// narrowed or became a window.
extern std::atomic<std::size_t> slices_at_once;

}  // namespace allod::operators
