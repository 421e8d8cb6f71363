// Progress of a walk through all slabs; see heap/rest.hpp.
#pragma once

#include "allod/base/base.hpp"

namespace allod::heap {

// Orphans that one look checks.
inline constexpr std::uint32_t kOrphanLooks = 16;
// Slabs of this size have gained free blocks: worth a walk if the program grows elsewhere.
inline constexpr std::size_t kMuchLoose = std::size_t{16} << 20;
// The helper's walk through all slabs.
struct RestWalk {
  Address at = 0;          // the next address
  bool moving = false;     // slabs were found that are not at rest
  std::size_t wanted = 0;  // bytes of slabs in which blocks became free
};
// How a round of it ends: at the end of all slabs, before, or when the system refuses to purge.
enum class WalkEnd : std::uint8_t { all, early, refused };
// Limits and result of the walk in one pause. The limits bound the time that callers wait; see
// decision 0089.
inline constexpr std::uint32_t kRestLooks = 256;
inline constexpr std::uint32_t kRestPieces = 64;
inline constexpr std::size_t kRestBytes = std::size_t{1} << 20;
struct RestStep {
  Address at = 0;            // the next address
  std::uint32_t looks = 0;   // at slabs
  std::uint32_t pieces = 0;  // purged, of `bytes`
  std::size_t bytes = 0;
  bool is_refused = false;  // by the system
  bool moving = false;      // slabs were found that are not at rest

  [[nodiscard]] constexpr bool is_long(std::uint32_t pieces_to_come) const noexcept {
    return looks >= kRestLooks || pieces + pieces_to_come >= kRestPieces || bytes >= kRestBytes;
  }
};

}  // namespace allod::heap
