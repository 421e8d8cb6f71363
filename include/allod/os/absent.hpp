// What only Linux has got, as parts of a platform: see os::Hosting.
#pragma once

#include <cstddef>

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

// Processes in the memory of another.
struct NoGuests {
  static constexpr int own_id() noexcept { return 1; }
  static constexpr int host() noexcept { return 1; }
  static void expect() noexcept {}
};

}  // namespace allod::os
