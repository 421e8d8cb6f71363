// Instructions of processors that fill long runs of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod {

#if defined(__x86_64__)
// From here on, the processor writes whole cache lines without reading them first.
inline constexpr std::size_t kLongFill = 4096;

inline __attribute__((always_inline)) void fill_words(void* at, std::uint64_t word,
                                                      std::size_t words) noexcept {
  __asm__ volatile("rep stosq" : "+D"(at), "+c"(words) : "a"(word) : "memory");
}
#else
// None is worth it.
inline constexpr std::size_t kLongFill = ~std::size_t{0};

inline void fill_words(void*, std::uint64_t, std::size_t) noexcept {}
#endif

}  // namespace allod
