#include "hardened/reports.hpp"

#include "hardened/large.hpp"
#include "settings/options.hpp"

namespace allod::hardened {

namespace {

[[nodiscard]] Misuse misuse_of(MisuseKind kind, const void* address) noexcept {
  return Process::heap().describe(kind, memory_tags::bare(address));
}

}  // namespace

Misuse misuse_of(MisuseKind kind, Block block, BlockState state) noexcept {
  Misuse misuse = misuse_of(kind, reinterpret_cast<const void*>(block.address));
  misuse.state = state;
  if (state.is_live() || state.was_freed()) misuse.requested = block.requested(state);
  return misuse;
}

Misuse misuse_of_empty(MisuseKind kind, const void* address, Origin origin) noexcept {
  return {.kind = kind,
          .address = address,
          .block = address,
          .requested = 0,
          .state = BlockState::live(origin, 0)};
}

bool describe_empty(MisuseKind kind, const void* address, Misuse* misuse) noexcept {
  if (!empty_blocks.holds(address) || !empty_blocks.is_in_use(address)) return false;
  *misuse = misuse_of_empty(kind, address, empty_blocks.origin_of(address));
  return true;
}

void report_wrong_size(Misuse misuse, std::size_t claimed_bytes) noexcept {
  misuse.claimed_bytes = claimed_bytes;
  ReportToUser::report(misuse);
}
void report_wrong_function(Misuse misuse, Origin claimed) noexcept {
  misuse.claimed_origin = claimed;
  ReportToUser::report(misuse);
}
void report_stray(const void* address) noexcept {
  const Address at = memory_tags::bare(address_of(address));
  const space::Tag tag = Process::heap().space().map().tag_of(at);
  auto kind = MisuseKind::invalid_free;
  if (empty_blocks.holds(address)) {
    if (empty_blocks.is_block(address)) kind = MisuseKind::double_free;
  } else if (tag == space::kForeignTag) {
    kind = MisuseKind::foreign_free;
    if (!settings().heap.report_foreign) return;
  } else if (tag == space::kFreeTag) {
    kind = MisuseKind::double_free;
  }
  Misuse misuse = misuse_of(kind, address);
  if (misuse.block != nullptr) {
    const Block around = find(misuse.block);
    if (around.bytes != 0) misuse.state = around.cell.load();
    if (misuse.state.is_live()) misuse.requested = around.requested(misuse.state);
  }
  ReportToUser::report(misuse);
}
void report_not_in_use(Block block, BlockState state) noexcept {
  ReportToUser::report(misuse_of(MisuseKind::double_free, block, state));
}
void report_overflow(Block block, BlockState state) noexcept {
  ReportToUser::report(misuse_of(MisuseKind::overflow, block, state));
}

namespace {

// The first byte that is not zero, or else the first.
[[nodiscard]] const void* first_changed(Address from, std::size_t bytes) noexcept {
  const auto* const first = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (first[i] != 0) return first + i;
  }
  return first;
}

// The nearest block in use within reach, in steps of one or, by wraparound, minus one.
[[nodiscard]] heap::Neighbour neighbour_of(const Block& block, std::uint32_t step) noexcept {
  constexpr int kMost = 64;
  for (std::uint32_t i = block.index + step, left = kMost; left > 0; i += step, --left) {
    if (i >= block.slab->capacity()) break;
    const BlockState state = slab::BlockStates::of(*block.slab, i).load();
    if (state.is_live()) return {block.slab->block_at(i), block.bytes - state.slack()};
  }
  return {};
}

}  // namespace

void report_written(Block block, BlockState state) noexcept {
  Misuse misuse = misuse_of(MisuseKind::write_after_free, block, state);
  misuse.address = first_changed(block.address, block.bytes);
  ReportToUser::report(misuse);
}
void report_stray_write(Address from, std::size_t bytes) noexcept {
  Misuse misuse = misuse_of(MisuseKind::stray_write, first_changed(from, bytes));
  const Block block = misuse.block == nullptr ? no_block() : find(misuse.block);
  if (block.is_in_slab()) {
    misuse.before = neighbour_of(block, ~0U);
    misuse.behind = neighbour_of(block, 1);
  }
  ReportToUser::report(misuse);
}

// --- faults ------------------------------------------------------------------------------

void add_state(Misuse* misuse) noexcept {
  if (misuse->block == nullptr) return;
  const Block block = find(misuse->block);
  if (block.bytes == 0) return;
  misuse->state = block.cell.load();
  // It may never have been handed out.
  if (misuse->state.is_live() || misuse->state.was_freed()) {
    misuse->requested = block.requested(misuse->state);
  }
}

bool explain_wrong_tag(const void* address, Misuse* misuse) noexcept {
  *misuse = misuse_of(MisuseKind::wrong_tag, address);
  if (misuse->block == nullptr && !Process::heap().describe_behind(address, misuse)) {
    const space::Tag tag = Process::heap().space().map().tag_of(address_of(misuse->address));
    misuse->kind = MisuseKind::access_after_free;
    return tag == space::kFreeTag;
  }
  add_state(misuse);
  const std::size_t offset = address_of(misuse->address) - address_of(misuse->block);
  if (misuse->state.was_freed()) {
    misuse->kind = MisuseKind::access_after_free;
  } else if (offset >= misuse->requested) {
    misuse->kind = MisuseKind::access_past_the_end;
  }
  return true;
}

bool is_closed(const void* address) noexcept {
  Misuse misuse{.kind = MisuseKind::access_past_the_end, .address = address};
  return explain_fault(address, &misuse);
}

bool explain_fault(const void* address, Misuse* misuse) noexcept {
  if (empty_blocks.holds(address)) {
    *misuse = Misuse{.kind = MisuseKind::access_to_nothing, .address = address};
    return true;
  }
  *misuse = misuse_of(MisuseKind::access_past_the_end, address);
  const bool is_behind_slab =
      Process::heap().is_guarded(address) && Process::heap().describe_behind(address, misuse);
  if (misuse->block == nullptr) return false;
  const Block block = find(misuse->block);
  if (block.bytes == 0 || !on<Mitigation::guards>()) return false;
  add_state(misuse);
  if (is_behind_slab) return true;
  if (misuse->state.is_live()) {
    return may_have_guard(block) && spare_pages_of(block, misuse->requested).hold(address);
  }
  misuse->kind = MisuseKind::access_after_free;
  // A block that is just being freed may be closed already.
  const BlockState state = misuse->state;
  const bool is_closed = state.was_freed() ? state.is_closed() : is_closed_while_free(block);
  return is_closed && pages_of(block).hold(address);
}

}  // namespace allod::hardened
