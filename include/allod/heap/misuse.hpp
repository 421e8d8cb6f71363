// What a program can do wrong, as the heap tells it.
#pragma once

#include "allod/slab/block_state.hpp"

namespace allod::heap {

enum class MisuseKind : std::uint8_t {
  double_free,    // the block is free already
  invalid_free,   // inside one of our spans, but not the start of a block
  foreign_free,   // not our memory
  size_mismatch,  // a sized free or delete with a size of another class
  wrong_heap,     // not a block of the first-class heap that was named
  // Seen by policies that keep states of blocks:
  overflow,          // something was written behind a block
  write_after_free,  // something was written into a free block
  wrong_function,    // freed by another family of functions than allocated by
  // What a function that copies was asked for:
  copy_past_the_end,  // more bytes than are left in the block
  copy_after_free,    // bytes of a block that is free
  // Of blocks between guards:
  underflow,                // something was written before a block
  access_after_free,        // a fault
  access_past_the_end,      // a fault
  access_before_the_start,  // a fault
  access_to_nothing,        // a fault: a block of no bytes
  wrong_tag,                // a fault: to a block, by a pointer that was not given for it
};

// Has the processor refused an access, so that the program cannot go on?
[[nodiscard]] constexpr bool is_fault(MisuseKind kind) noexcept {
  return kind >= MisuseKind::access_after_free;
}

inline constexpr std::size_t kUnknownBytes = ~std::size_t{0};

struct Misuse {
  MisuseKind kind;
  const void* address;
  // The block around the address; null when there is none.
  const void* block = nullptr;
  std::size_t block_bytes = 0;
  std::uint32_t owner = 0;          // id of the domain or heap that owns the block; 0: none
  std::size_t claimed_bytes = 0;    // size_mismatch, copies: what the caller said
  std::uint32_t claimed_owner = 0;  // wrong_heap: id of the heap that the caller named
  // Where states are kept:
  std::size_t requested = kUnknownBytes;  // what the program asked for
  slab::BlockState state = {};
  slab::Origin claimed_origin = slab::Origin::any;  // wrong_function: the caller's family
  const char* function = "";                        // copies: the function's name
  bool is_write = false;                            // copies: to the address, and not from it
  std::size_t first_changed = kUnknownBytes;        // overflow: in the block, where it is known
};

// Is it a copy that was found out before it was done?
[[nodiscard]] constexpr bool is_copy(MisuseKind kind) noexcept {
  return kind == MisuseKind::copy_past_the_end || kind == MisuseKind::copy_after_free;
}

// The block around an address, and the bytes of it that the program may use.
struct Bounds {
  const void* start = nullptr;  // null: there is none
  std::size_t bytes = 0;

  // Of a block that is free; only told where states or records are kept, and by guards.
  static constexpr std::size_t kFreed = ~std::size_t{0};
  [[nodiscard]] constexpr bool was_freed() const noexcept { return bytes == kFreed; }
};

// Says what happens on misuse. `report` may return, and then nothing is done
// with the address. It is called without any lock held and must not allocate.
template <class R>
concept Reporter = requires(const Misuse& misuse) {
  { R::report(misuse) };
};

// For compositions that do not name another: stop.
struct TrapOnMisuse {
  static void report(const Misuse& misuse) noexcept {
    if (misuse.kind != MisuseKind::foreign_free) check_failed("misuse of the heap");
  }
};

}  // namespace allod::heap
