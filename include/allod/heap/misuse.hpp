// Misuse of the heap by the program, as it is reported.
#pragma once

#include <string_view>

#include "allod/slab/block_state.hpp"

namespace allod::heap {

enum class MisuseKind : std::uint8_t {
  double_free,    // the block is free already
  invalid_free,   // an address inside of a span, but not the start of a block
  foreign_free,   // not the heap's memory
  size_mismatch,  // the size of a sized free or delete belongs to another class
  wrong_heap,     // not a block of the heap that was named
  // Detected with states of blocks:
  overflow,          // a write behind a block
  write_after_free,  // a write to a free block
  wrong_function,    // freed by another family of functions than allocated by
  stray_write,       // a write to memory of the heap that nobody has had yet
  // Detected in a call of a copying function:
  copy_past_the_end,  // more bytes than are left in the block
  copy_after_free,    // the block is free
  // Blocks between guards:
  underflow,                // a write before a block
  access_after_free,        // a fault
  access_past_the_end,      // a fault
  access_before_the_start,  // a fault
  access_to_nothing,        // a fault: a block of no bytes
  wrong_tag,                // a fault: a pointer with the wrong tag
};

// Whether it is a fault, after which the program cannot go on.
[[nodiscard]] constexpr bool is_fault(MisuseKind kind) noexcept {
  return kind >= MisuseKind::access_after_free;
}

// The words before the address.
[[nodiscard]] constexpr std::string_view start_of_report(MisuseKind kind) noexcept {
  switch (kind) {
    case MisuseKind::double_free:
      return "double free of ";
    case MisuseKind::invalid_free:
      return "invalid free of ";
    case MisuseKind::foreign_free:
      return "free of foreign address ";
    case MisuseKind::size_mismatch:
      return "free with the wrong size of ";
    case MisuseKind::wrong_heap:
      return "free to the wrong heap of ";
    case MisuseKind::overflow:
      return "write past the end of ";
    case MisuseKind::write_after_free:
      return "write after free to ";
    case MisuseKind::wrong_function:
      return "free with the wrong function of ";
    case MisuseKind::copy_past_the_end:
      return "copy past the end of the block at ";
    case MisuseKind::copy_after_free:
      return "copy after free at ";
    case MisuseKind::underflow:
      return "write before the start of ";
    case MisuseKind::stray_write:
      return "stray write to ";
    case MisuseKind::access_after_free:
      return "access after free to ";
    case MisuseKind::access_past_the_end:
      return "access past the end at ";
    case MisuseKind::access_before_the_start:
      return "access before the start at ";
    case MisuseKind::access_to_nothing:
      return "access to a block of no bytes at ";
    case MisuseKind::wrong_tag:
      return "access by a pointer to another block to ";
  }
  return "misuse of ";
}

inline constexpr std::size_t kUnknownBytes = ~std::size_t{0};

// A block in use beside memory that was written to.
struct Neighbour {
  const void* block = nullptr;  // null: there is none in the slab
  std::size_t requested = 0;
};

struct Misuse {
  MisuseKind kind;
  const void* address;
  // The block around the address, or null.
  const void* block = nullptr;
  std::size_t block_bytes = 0;
  std::uint32_t owner = 0;          // id of the domain or heap that owns the block; 0: none
  std::size_t claimed_bytes = 0;    // size_mismatch, copies: the caller's size
  std::uint32_t claimed_owner = 0;  // wrong_heap: id of the heap that the caller named
  // With states of blocks:
  std::size_t requested = kUnknownBytes;  // the size that the program asked for
  slab::BlockState state = {};
  slab::Origin claimed_origin = slab::Origin::any;  // wrong_function: the caller's family
  const char* function = "";                        // copies: the function's name
  bool is_write = false;                      // copies: whether the address is the destination
  std::size_t first_changed = kUnknownBytes;  // overflow: offset in the block, if known
  Neighbour before = {};                      // stray_write: the nearest one
  Neighbour behind = {};
};

// Whether it is a copy that was detected before it was done.
[[nodiscard]] constexpr bool is_copy(MisuseKind kind) noexcept {
  return kind == MisuseKind::copy_past_the_end || kind == MisuseKind::copy_after_free;
}

// The block around an address, and the bytes of it that the program may use.
struct Bounds {
  const void* start = nullptr;  // null: there is no block
  std::size_t bytes = 0;

  // For a free block; only with states or records, and from guards.
  static constexpr std::size_t kFreed = ~std::size_t{0};
  [[nodiscard]] constexpr bool was_freed() const noexcept { return bytes == kFreed; }
};

// Receives misuse. If `report` returns, the address is left alone. Called without locks, except in
// a Turn; must not allocate.
template <class R>
concept Reporter = requires(const Misuse& misuse) {
  { R::report(misuse) };
};

// The default: traps.
struct TrapOnMisuse {
  static void report(const Misuse& misuse) noexcept {
    if (misuse.kind != MisuseKind::foreign_free) check_failed("misuse of the heap");
  }
};

}  // namespace allod::heap
