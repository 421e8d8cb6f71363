// Types for units, so that slices and bytes cannot be mixed up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace allod {

using Address = std::uintptr_t;

// The unit of the page map, at least the largest page of any supported system.
inline constexpr unsigned kSliceShift = 16;
inline constexpr std::size_t kSliceBytes = std::size_t{1} << kSliceShift;

struct Slices {
  std::uint32_t count = 0;

  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return std::size_t{count} << kSliceShift;
  }
  // `bytes` must be less than 2 * kMaxBlock.
  [[nodiscard]] static constexpr Slices covering(std::size_t bytes) noexcept {
    return {static_cast<std::uint32_t>((bytes + kSliceBytes - 1) >> kSliceShift)};
  }
  // Whether this is the number of slices that covers `wanted` bytes, which may be any number.
  [[nodiscard]] constexpr bool just_covers(std::size_t wanted) const noexcept {
    return wanted <= bytes() && bytes() - wanted < kSliceBytes;
  }
  friend constexpr auto operator<=>(Slices, Slices) noexcept = default;
  friend constexpr Slices operator+(Slices a, Slices b) noexcept { return {a.count + b.count}; }
  friend constexpr Slices operator-(Slices a, Slices b) noexcept { return {a.count - b.count}; }
};

// Whether there are many more addresses than memory.
inline constexpr bool kAddressesAbound = sizeof(std::size_t) > 4;

// Largest block and largest alignment, a power of two, so that Slices can count one of each
// together. With 32 bits, the largest block is what C allows, in whole slices.
inline constexpr std::size_t kMaxBlock =
    kAddressesAbound ? static_cast<std::size_t>(std::uint64_t{1} << (kSliceShift + 31))
                     : std::size_t{PTRDIFF_MAX} & ~(kSliceBytes - 1);

// Index of a size class.
using ClassIndex = std::uint32_t;

// A memory node, as far as nodes are told apart: those with higher ids count as lower ones.
using Node = std::uint8_t;
inline constexpr std::uint32_t kMostNodes = 16;

template <class T>
[[nodiscard]] constexpr T align_up(T value, std::size_t alignment) noexcept {
  return static_cast<T>((value + (alignment - 1)) & ~static_cast<T>(alignment - 1));
}
template <class T>
[[nodiscard]] constexpr T align_down(T value, std::size_t alignment) noexcept {
  return static_cast<T>(value & ~static_cast<T>(alignment - 1));
}
[[nodiscard]] constexpr bool is_power_of_two(std::size_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}
[[nodiscard]] inline Address address_of(const void* pointer) noexcept {
  return reinterpret_cast<Address>(pointer);
}

}  // namespace allod
