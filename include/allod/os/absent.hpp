// What only Linux has got, as parts of a platform: see os::Hosting.
#pragma once

#include <errno.h>

#include <cstddef>
#include <cstdint>

#include "allod/os/platform.hpp"

namespace allod::os {

// Restartable sequences. Threads have caches of their own instead.
struct NoSequences {
  struct Area {
    static constexpr bool is_missing() noexcept { return false; }
    static constexpr bool is_refused() noexcept { return true; }
    static void enter() noexcept {}
    static void leave() noexcept {}
  };
  struct Place {
    std::size_t processor;
  };

  static constexpr bool start() noexcept { return false; }
  static constexpr bool close() noexcept { return false; }
  static void open() noexcept {}
  static void reset_in_child() noexcept {}
  static constexpr Place place() noexcept { return {0}; }
  static constexpr Sequence push(Place, void***, void** const*, void*) noexcept {
    return Sequence::refused;
  }
  static constexpr Sequence pop(Place, void***, void** const*, void**) noexcept {
    return Sequence::refused;
  }
};

// Pages that stay where they are and as large as they are, and one memory node.
struct PlainPages {
  static void populate(void*, std::size_t) noexcept {}
  static void dump(void*, std::size_t, bool) noexcept {}
  static void prefer_huge(void*, std::size_t) noexcept {}
  static void avoid_huge(void*, std::size_t) noexcept {}
  static void prefer_huge_once(void*, std::size_t) noexcept {}
  static void populate_huge(void*, std::size_t) noexcept {}
  static void name(void*, std::size_t, const char*) noexcept {}
  [[nodiscard]] static int grow(void*, std::size_t, std::size_t) noexcept { return EFAULT; }
  [[nodiscard]] static Moved move_pages(void*, std::size_t, void*) noexcept { return Moved::no; }
  static void forget_advice(void*, std::size_t) noexcept {}
  [[nodiscard]] static bool is_one_mapping(void*, std::size_t) noexcept { return false; }
  [[nodiscard]] static bool renew(void*, std::size_t) noexcept { return false; }
  [[nodiscard]] static int bind(void*, std::size_t, std::uint64_t) noexcept { return ENOSYS; }
  [[nodiscard]] static std::uint32_t nodes() noexcept { return 1; }
  [[nodiscard]] static std::uint32_t node() noexcept { return 0; }
  [[nodiscard]] static std::uint32_t node_of(std::uint32_t) noexcept { return 0; }
};

// Processes in the memory of another.
struct NoGuests {
  static constexpr int own_id() noexcept { return 1; }
  static constexpr int host() noexcept { return 1; }
  static void expect() noexcept {}
};

}  // namespace allod::os
