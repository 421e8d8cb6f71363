#include "hardened/neighbours.hpp"

#include "hardened/reports.hpp"

namespace allod::hardened {

constinit bool had_other_threads = false;

bool is_clear(Address from, Address to) noexcept {
  using Word = std::uint64_t;
  if (to < from + sizeof(Word)) {
    for (; from < to; ++from) {
      if (*reinterpret_cast<const unsigned char*>(from) != 0) return false;
    }
    return true;
  }
  const auto word_at = [](Address at) noexcept {
    Word word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
    return word;
  };
  if ((word_at(from) | word_at(to - sizeof(Word))) != 0) return false;
  const Address first = align_up(from, sizeof(Word));
  const Address last = align_down(to, sizeof(Word));
  return heaps::is_zero(first, last > first ? last - first : 0);
}

bool is_rest_clear(const Block& block, BlockState state) noexcept {
  if (!on<Mitigation::canary>() || !on<Mitigation::zero>() || block.is_heaps) return true;
  const bool has_end = has_canary(state) && Canary::has_end(block.bytes);
  const Address end = block.address + block.bytes - (has_end ? Canary::kBytes : 0);
  const Address from =
      block.address + block.requested(state) + (has_canary(state) ? Canary::kBytes : 0);
  if (from >= end) return true;
  const Address page_end = align_up(from, platform().page_size());
  if (page_end >= end || block.bytes < heaps::kAsked || is_filled(block)) {
    return is_clear(from, end);
  }
  // The first canary's page, and that of the second.
  const Address last = align_down(end, platform().page_size());
  return is_clear(from, page_end) && (!has_end || is_clear(last > from ? last : from, end));
}

void examine_neighbour(const Block& neighbour, Side side) noexcept {
  BlockState state;
  for (int look = 0; look < 8; ++look) {
    state = neighbour.cell.load();
    const bool intact = is_side_intact(neighbour, state, side);
    // The bytes belong to that state only if the state is still the same.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (intact || neighbour.cell.load() != state) return;
    cpu_relax();
  }
  if (state.is_live()) return report_overflow(neighbour, state);
  if (had_other_threads) return;
  const Address at = side == Side::before
                         ? neighbour.address + neighbour.bytes - sizeof(std::uint64_t)
                         : neighbour.address;
  auto* const word = reinterpret_cast<std::uint64_t*>(at);
  std::uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
  state.was_freed() ? report_written(neighbour, state)
                    : report_stray_write(at, sizeof(std::uint64_t));
  __atomic_compare_exchange_n(word, &found, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace allod::hardened
