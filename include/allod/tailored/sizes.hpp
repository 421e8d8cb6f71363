// The size classes of a tailored heap: a composition's specifications, and their table.
#pragma once

#include <array>
#include <bit>
#include <concepts>

#include "allod/base/base.hpp"

namespace allod {

// The specification of a size class. Zeros get defaults, see tailored::ClassTable.
struct ClassSpec {
  std::size_t size;        // bytes of a block; a multiple of 8, at most 1 MiB
  std::size_t slab_bytes;  // a power of two from 4 KiB to 64 MiB
  std::uint32_t capacity;  // of the class's magazine, in blocks
};

template <std::size_t kSize, std::size_t kSlabBytes = 0, std::uint32_t kCapacity = 0>
struct SizeClass {
  static constexpr ClassSpec kSpec{kSize, kSlabBytes, kCapacity};
};

// The parts that name size classes, each a list in ascending order: kSpecs.
template <class... C>
struct Classes {
  static constexpr std::array<ClassSpec, sizeof...(C)> kSpecs{C::kSpec...};
};
template <std::size_t... kSizes>
using FixedClasses = Classes<SizeClass<kSizes>...>;
template <std::size_t kSize>
using OneSize = FixedClasses<kSize>;
using NoClasses = Classes<>;

// kSteps classes for each doubling from kFrom to kTo, without sizes that are not a multiple of 16.
template <std::size_t kFrom, std::size_t kTo, unsigned kSteps>
struct GeometricClasses {
  static constexpr bool kSound = is_power_of_two(kFrom) && is_power_of_two(kTo) && kFrom <= kTo &&
                                 is_power_of_two(kSteps) && kSteps <= 16;

 private:
  template <class Visit>
  static constexpr void for_each_size(Visit&& visit) {
    if (!kSound) return visit(16);  // tailored::Sound reports it
    for (std::size_t base = kFrom; base <= kTo; base *= 2) {
      visit(base);
      for (std::size_t step = 1; step < kSteps && base < kTo; ++step) {
        const std::size_t more = base * step;
        if (more % (16 * kSteps) == 0) visit(base + more / kSteps);
      }
    }
  }
  static constexpr std::size_t kCount = [] {
    std::size_t count = 0;
    for_each_size([&](std::size_t) { ++count; });
    return count;
  }();

 public:
  static constexpr std::array<ClassSpec, kCount> kSpecs = [] {
    std::array<ClassSpec, kCount> specs{};
    std::size_t index = 0;
    for_each_size([&](std::size_t size) { specs[index++] = {size, 0, 0}; });
    return specs;
  }();
};
template <std::size_t kFrom, std::size_t kTo>
using PowersOfTwo = GeometricClasses<kFrom, kTo, 1>;

namespace tailored {

template <class Sizes>
concept NamesClasses = requires {
  { Sizes::kSpecs.size() } -> std::convertible_to<std::size_t>;
  { Sizes::kSpecs.data() } -> std::convertible_to<const ClassSpec*>;
};

// The layout of a class's blocks.
struct Shape {
  Divider divider;  // of an offset, by block_bytes
  std::uint32_t block_bytes = 0;
  std::uint32_t blocks = 0;    // of a slab
  std::uint32_t units = 0;     // of a slab
  std::uint32_t capacity = 0;  // of the magazine
};

inline constexpr std::size_t kLeastSlab = std::size_t{4} << 10;
inline constexpr std::size_t kMostSlab = std::size_t{64} << 20;
inline constexpr std::size_t kMostClassSize = std::size_t{1} << 20;
inline constexpr std::size_t kMostClasses = 128;

// The sizes of a composition with defaults: slabs of 16 KiB, or of eight blocks if that is more;
// magazines for 32 KiB, at least 2 and at most 256 blocks.
template <class Sizes>
struct ClassTable {
  static constexpr ClassIndex kCount = static_cast<ClassIndex>(Sizes::kSpecs.size());
  static constexpr std::size_t kUsualSlab = std::size_t{16} << 10;
  static constexpr std::size_t kTableMax = 1024;  // larger sizes have no element in the table

  [[nodiscard]] static constexpr std::size_t size_of(ClassIndex c) noexcept {
    return Sizes::kSpecs[c].size;
  }
  static constexpr std::size_t kLargest = [] {
    if constexpr (kCount == 0)
      return std::size_t{0};
    else
      return size_of(kCount - 1);
  }();

  static constexpr bool kAligns = [] {
    bool aligns = true;
    for (ClassIndex c = 0; c < kCount; ++c) aligns = aligns && size_of(c) % 16 == 0;
    return aligns;
  }();

  [[nodiscard]] static constexpr std::size_t slab_bytes(ClassIndex c) noexcept {
    const ClassSpec& spec = Sizes::kSpecs[c];
    if (spec.slab_bytes != 0) return spec.slab_bytes;
    const std::size_t eight = std::bit_ceil(8 * spec.size);
    return eight < kUsualSlab ? kUsualSlab : eight;
  }
  // The unit of chunks: the smallest slab.
  static constexpr std::size_t kUnitBytes = [] {
    std::size_t unit = kUsualSlab;
    for (ClassIndex c = 0; c < kCount; ++c) unit = slab_bytes(c) < unit ? slab_bytes(c) : unit;
    return unit;
  }();
  static constexpr std::size_t kMostSlabBytes = [] {
    std::size_t most = kUnitBytes;
    for (ClassIndex c = 0; c < kCount; ++c) most = slab_bytes(c) > most ? slab_bytes(c) : most;
    return most;
  }();

  static constexpr auto kShapes = [] {
    std::array<Shape, (kCount > 0 ? kCount : 1)> shapes{};
    for (ClassIndex c = 0; c < kCount; ++c) {
      const std::size_t size = size_of(c);
      const std::size_t slab = slab_bytes(c);
      const std::size_t fit = (std::size_t{32} << 10) / size;
      const std::uint32_t usual = static_cast<std::uint32_t>(fit < 2 ? 2 : fit > 256 ? 256 : fit);
      const std::uint32_t named = Sizes::kSpecs[c].capacity;
      shapes[c] = {Divider{size}, static_cast<std::uint32_t>(size),
                   static_cast<std::uint32_t>(slab / size),
                   static_cast<std::uint32_t>(slab / kUnitBytes), named != 0 ? named : usual};
    }
    return shapes;
  }();
  // Words of bits for the blocks of a unit.
  static constexpr std::uint32_t kWordsPerUnit = [] {
    std::uint32_t most = 1;
    for (ClassIndex c = 0; c < kCount; ++c) {
      const std::uint32_t words = words_for(kShapes[c].blocks) + kShapes[c].units - 1;
      most = words / kShapes[c].units > most ? words / kShapes[c].units : most;
    }
    return most;
  }();
  // The cells of all magazines: where those of a class begin.
  static constexpr auto kCellOffsets = [] {
    std::array<std::uint32_t, kCount + 1> offsets{};
    for (ClassIndex c = 0; c < kCount; ++c) offsets[c + 1] = offsets[c] + kShapes[c].capacity;
    return offsets;
  }();
  static constexpr std::uint32_t kCells = kCellOffsets[kCount];

  // The smallest class for `size`; kCount if there is none.
  [[nodiscard]] static constexpr ALLOD_INLINE ClassIndex of(std::size_t size) noexcept {
    if (size <= kTableMax) return kSmall[(size + 7) / 8];
    return search(size);
  }
  // The same with blocks at multiples of `alignment`, a power of two.
  [[nodiscard]] static constexpr ClassIndex of_aligned(std::size_t size,
                                                       std::size_t alignment) noexcept {
    ClassIndex c = of(size);
    while (c < kCount && size_of(c) % alignment != 0) ++c;
    return alignment <= kLeastSlab ? c : kCount;
  }

 private:
  [[nodiscard]] static constexpr ClassIndex search(std::size_t size) noexcept {
    ClassIndex from = 0;
    ClassIndex to = kCount;
    while (from < to) {
      const ClassIndex middle = (from + to) / 2;
      if (size_of(middle) < size) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }
  static constexpr auto kSmall = [] {
    std::array<std::uint8_t, kTableMax / 8 + 1> classes{};
    for (std::size_t i = 0; i < classes.size(); ++i) {
      classes[i] = static_cast<std::uint8_t>(search(8 * i));
    }
    return classes;
  }();
};

}  // namespace tailored
}  // namespace allod
