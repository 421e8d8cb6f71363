// Layer 8: the block around an address. Programs that use it link one of the libraries.
#pragma once

#include <allod.h>

#include <cstddef>
#include <optional>
#include <span>

namespace allod {

// The usable bytes of the block in use that contains the address, as by allod_bounds. Empty if
// there is none. Thread-safe.
[[nodiscard]] inline std::optional<std::span<std::byte>> bounds(const void* address) noexcept {
  void* start = nullptr;
  std::size_t size = 0;
  if (allod_bounds(address, &start, &size) == 0) return std::nullopt;
  return std::span{static_cast<std::byte*>(start), size};
}

}  // namespace allod
