#include "entry/bounds.hpp"

#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "instance/memory_tags.hpp"
#include "report/tracker.hpp"

namespace allod::bounds {

namespace {

ALLOD_INLINE heap::Bounds find_block(const void* address) noexcept {
  if constexpr (Policy::kBlockStates) return hardened::bounds_of(address);
  heap::Bounds found = Process::heap().bounds_of(address);
  if (__builtin_expect(found.start == nullptr, 0)) {
    return Guards::holds(address) ? Guards::bounds_of(address) : found;
  }
  if constexpr (Policy::kTracked) {
    if (!track_bounds(found.start, &found.bytes)) found.bytes = heap::Bounds::kFreed;
  }
  return found;
}

}  // namespace

heap::Bounds find(const void* address) noexcept {
  const heap::Bounds block = find_block(address);
  return block.was_freed() ? heap::Bounds{} : block;
}

namespace {

[[gnu::noinline]] std::size_t room_in_block(const void* address, std::size_t bytes) noexcept {
  const heap::Bounds block = find_block(address);
  std::size_t left = 0;
  if (__builtin_expect(block.start == nullptr, 0)) {
    left = Process::heap().room_in_place(memory_tags::bare(address));
  } else {
    const std::size_t offset = address_of(address) - address_of(block.start);
    if (!block.was_freed() && offset <= block.bytes) left = block.bytes - offset;
  }
  return left < bytes ? left : bytes;
}

}  // namespace

// Most copied addresses are in no block, for example on the stack. Blocks of size 0 are
// inaccessible and need no check.
std::size_t room(const void* address, std::size_t bytes) noexcept {
  const Address at = memory_tags::bare(address_of(address));
  const bool is_foreign = Process::heap().space().map().tag_of(at) == space::kForeignTag;
  if (is_foreign && (Policy::kBlockStates || !Guards::holds(address))) return bytes;
  return room_in_block(address, bytes);
}

void report_copy(const void* address, std::size_t bytes, bool is_write,
                 const char* function) noexcept {
  const auto kind = find_block(address).was_freed() ? heap::MisuseKind::copy_after_free
                                                    : heap::MisuseKind::copy_past_the_end;
  heap::Misuse misuse = Guards::holds(address)
                            ? Guards::describe(kind, address)
                            : Process::heap().describe(kind, memory_tags::bare(address));
  if constexpr (Policy::kBlockStates) hardened::add_state(&misuse);
  misuse.claimed_bytes = bytes;
  misuse.function = function;
  misuse.is_write = is_write;
  ReportToUser::report(misuse);
}

}  // namespace allod::bounds
