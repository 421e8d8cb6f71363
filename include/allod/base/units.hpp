// Units that must not be mixed up: a count of slices is not a count of bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace allod {

using Address = std::uintptr_t;

// The unit of the page map. No page of any supported system is larger.
inline constexpr unsigned kSliceShift = 16;
inline constexpr std::size_t kSliceBytes = std::size_t{1} << kSliceShift;

// A number of 64 KiB slices.
struct Slices {
  std::uint32_t count = 0;

  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return std::size_t{count} << kSliceShift;
  }
  // Of at most twice kMaxBlock.
  [[nodiscard]] static constexpr Slices covering(std::size_t bytes) noexcept {
    return {static_cast<std::uint32_t>((bytes + kSliceBytes - 1) >> kSliceShift)};
  }
  // Is it what covers so many? They may be more than a count of slices can be.
  [[nodiscard]] constexpr bool just_covers(std::size_t wanted) const noexcept {
    return wanted <= bytes() && bytes() - wanted < kSliceBytes;
  }
  friend constexpr auto operator<=>(Slices, Slices) noexcept = default;
  friend constexpr Slices operator+(Slices a, Slices b) noexcept { return {a.count + b.count}; }
  friend constexpr Slices operator-(Slices a, Slices b) noexcept { return {a.count - b.count}; }
};

// No block is larger, and no alignment: a count of slices holds one of each together.
inline constexpr std::size_t kMaxBlock = std::size_t{1} << (kSliceShift + 31);

// Index of a size class in its scheme.
using ClassIndex = std::uint32_t;

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
