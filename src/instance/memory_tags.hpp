// Memory tags (Armv8.5 MTE). The processor compares four bits of a pointer with four bits that
// belong to the 16 bytes it points to, and faults if they differ.
//
// For the hardened library. On other processors, or unless enabled, all functions do nothing, and
// pointers are addresses.
#pragma once

#include <sys/syscall.h>

#include "allod/base/auxiliary.hpp"
#include "allod/base/base.hpp"
#include "allod/base/cpu.hpp"

namespace allod::memory_tags {

// Bytes that share a tag.
inline constexpr std::size_t kGranule = 16;

#if defined(ALLOD_HAS_MEMORY_TAGS) && defined(ALLOD_VARIANT_HARDENED)

inline constexpr bool kMayExist = true;

// Enables the instructions for the assembler only; the compiler does not emit them by itself.
#define ALLOD_MEMTAG ".arch armv8.5-a+memtag\n\t"

namespace detail {
inline constexpr unsigned kShift = 56;
inline constinit Address bits = 0;  // the tag bits of a pointer; 0: not in use
}  // namespace detail

[[nodiscard]] ALLOD_INLINE bool are_on() noexcept { return detail::bits != 0; }

// Enables synchronous tag faults for the calling thread and those that it starts. False if the
// processor or the kernel lacks MTE.
[[nodiscard]] inline bool start() noexcept {
  // Values of <asm/hwcap.h> and <linux/prctl.h>, which older headers lack.
  constexpr unsigned long kProcessorHasThem = 1UL << 18;  // HWCAP2_MTE
  constexpr long kSetTaggedAddresses = 55;                // PR_SET_TAGGED_ADDR_CTRL
  constexpr long kTaggedAddresses = 1;                    // PR_TAGGED_ADDR_ENABLE
  constexpr long kStopAtOnce = 1L << 1;                   // PR_MTE_TCF_SYNC
  constexpr long kDrawAllButZero = 0xfffeL << 3;          // PR_MTE_TAG_SHIFT
  if ((Auxiliary::value(AT_HWCAP2) & kProcessorHasThem) == 0) return false;
  if (raw_syscall(SYS_prctl, kSetTaggedAddresses, kTaggedAddresses | kStopAtOnce | kDrawAllButZero,
                  0, 0, 0) != 0) {
    return false;
  }
  detail::bits = Address{15} << detail::kShift;
  return true;
}
// The mmap and mprotect flag for memory with tags.
inline constexpr long kProtection = 0x20;  // PROT_MTE

// Splits a pointer into address and tag.
[[nodiscard]] ALLOD_INLINE Address bare(Address pointer) noexcept {
  return pointer & ~detail::bits;
}
[[nodiscard]] ALLOD_INLINE Address tag_in(Address pointer) noexcept {
  return pointer & detail::bits;
}

// The following functions require memory with tags, and are_on().

// The memory's tag, in the bits that `tag_in` returns.
[[nodiscard]] ALLOD_INLINE Address tag_at(Address at) noexcept {
  __asm__ volatile(ALLOD_MEMTAG "ldg %0, [%0]" : "+r"(at) : : "memory");
  return tag_in(at);
}
// Returns a pointer to `at` with a random tag, neither 0 nor one of the two given.
[[nodiscard]] ALLOD_INLINE Address draw(Address at, Address but, Address nor) noexcept {
  const std::uint64_t excluded =
      std::uint64_t{1} << (but >> detail::kShift) | std::uint64_t{1} << (nor >> detail::kShift);
  Address pointer;
  __asm__ volatile(ALLOD_MEMTAG "irg %0, %1, %2" : "=r"(pointer) : "r"(at), "r"(excluded));
  return pointer;
}
// Sets the tag of the memory to the pointer's. It starts at a granule; `bytes` is rounded up to
// whole ones.
inline void set(Address pointer, std::size_t bytes) noexcept {
  for (const Address end = pointer + bytes; pointer < end; pointer += kGranule) {
    __asm__ volatile(ALLOD_MEMTAG "stg %0, [%0]" : : "r"(pointer) : "memory");
  }
}

// During its lifetime, the calling thread's accesses are not checked.
class Unchecked {
 public:
  Unchecked() noexcept {
    if (are_on()) __asm__ volatile(ALLOD_MEMTAG "msr tco, #1" : : : "memory");
  }
  ~Unchecked() {
    if (are_on()) __asm__ volatile(ALLOD_MEMTAG "msr tco, #0" : : : "memory");
  }
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;
};

#undef ALLOD_MEMTAG

#else

inline constexpr bool kMayExist = false;
inline constexpr long kProtection = 0;

[[nodiscard]] constexpr bool are_on() noexcept { return false; }
[[nodiscard]] constexpr bool start() noexcept { return false; }
[[nodiscard]] ALLOD_INLINE constexpr Address bare(Address pointer) noexcept { return pointer; }
[[nodiscard]] constexpr Address tag_in(Address) noexcept { return 0; }
[[nodiscard]] constexpr Address tag_at(Address) noexcept { return 0; }
[[nodiscard]] constexpr Address draw(Address at, Address, Address) noexcept { return at; }
constexpr void set(Address, std::size_t) noexcept {}

struct [[maybe_unused]] Unchecked {};

#endif

template <class T>
[[nodiscard]] ALLOD_INLINE T* bare(T* pointer) noexcept {
  if constexpr (!kMayExist) return pointer;
  return reinterpret_cast<T*>(bare(address_of(pointer)));
}

}  // namespace allod::memory_tags
