// Tags of memory (Armv8.5 MTE): the processor compares four bits of a pointer with four bits that
// belong to the 16 bytes that it points to, and refuses the access when they differ.
//
// For the hardened library. Where there are none, on other processors or because nobody has asked
// for them, all of this does nothing, and pointers are addresses.
#pragma once

#include <sys/syscall.h>

#include "allod/base/auxiliary.hpp"
#include "allod/base/base.hpp"
#include "allod/base/cpu.hpp"

namespace allod::memory_tags {

// As many bytes have one tag.
inline constexpr std::size_t kGranule = 16;

#if defined(__aarch64__) && defined(ALLOD_VARIANT_HARDENED)

inline constexpr bool kMayExist = true;

// The assembler takes the instructions from here on. The compiler does not use them by itself.
#define ALLOD_MEMTAG ".arch armv8.5-a+memtag\n\t"

namespace detail {
inline constexpr unsigned kShift = 56;
inline constinit Address bits = 0;  // of a pointer that hold a tag
}  // namespace detail

// Are they in use?
[[nodiscard]] ALLOD_INLINE bool are_on() noexcept { return detail::bits != 0; }

// From now on the calling thread, and those that it starts, are refused such accesses, and stopped
// at once. False when the processor or the system cannot do that.
[[nodiscard]] inline bool start() noexcept {
  // Values of <asm/hwcap.h> and <linux/prctl.h>, which older headers do not have.
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
// What mmap and mprotect are told, besides, of memory that is to have tags.
inline constexpr long kProtection = 0x20;  // PROT_MTE

// The address in a pointer, and the tag.
[[nodiscard]] ALLOD_INLINE Address bare(Address pointer) noexcept {
  return pointer & ~detail::bits;
}
[[nodiscard]] ALLOD_INLINE Address tag_in(Address pointer) noexcept {
  return pointer & detail::bits;
}

// What follows is for memory that can have tags, and while they are in use.

// That of the memory, where `tag_in` has it.
[[nodiscard]] ALLOD_INLINE Address tag_at(Address at) noexcept {
  __asm__ volatile(ALLOD_MEMTAG "ldg %0, [%0]" : "+r"(at) : : "memory");
  return tag_in(at);
}
// A pointer to the address with a random tag: neither 0 nor one of these two.
[[nodiscard]] ALLOD_INLINE Address draw(Address at, Address but, Address nor) noexcept {
  const std::uint64_t excluded =
      std::uint64_t{1} << (but >> detail::kShift) | std::uint64_t{1} << (nor >> detail::kShift);
  Address pointer;
  __asm__ volatile(ALLOD_MEMTAG "irg %0, %1, %2" : "=r"(pointer) : "r"(at), "r"(excluded));
  return pointer;
}
// Gives the memory the pointer's tag. It begins with a granule, and is rounded up to whole ones.
inline void set(Address pointer, std::size_t bytes) noexcept {
  for (const Address end = pointer + bytes; pointer < end; pointer += kGranule) {
    __asm__ volatile(ALLOD_MEMTAG "stg %0, [%0]" : : "r"(pointer) : "memory");
  }
}

// While this is there, the calling thread may read everything, with any tag.
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
