// Slabs at random places, if the platform wants that: neither the neighbour of a slab nor the place
// of the next one can be predicted.
//
// The cost is bounded: a few free spans are considered, and the cut is near the start of one, so
// that page tables and huge pages are as many as without. Slabs of several slices are placed as
// usual: scattered among small ones, they would leave holes that fit none of them.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_anywhere(Slices size, Filling filling) noexcept {
  if constexpr (os::Scattering<P>) {
    if (platform_.scatters() && size <= kLargestScattered) {
      const Node node = here();
      Span* span = choose_free(node, size, filling);
      if (span == nullptr && stock_up(node, size, filling)) {
        span = choose_free(node, size, filling);
      }
      if (span != nullptr) return cut_anywhere(span, size);
    }
  }
  return take(size, {1}, filling);
}

// Dirty memory first, as always. Huge pages that are used in part are filled before others.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::choose_free(Node node, Slices size, Filling filling) noexcept {
  constexpr std::uint32_t kChoices = 8;
  Span* choices[kChoices];
  std::uint32_t count = free_.dirty(node).find_some(size, choices, kChoices);
  if (count == 0) {
    const bool is_dense = filling == Filling::dense;
    count = free_.clean(node, filling).find_some(size, choices, is_dense ? 1 : kChoices);
  }
  if constexpr (os::Scattering<P>) return count == 0 ? nullptr : choices[platform_.draw(count)];
  return nullptr;
}

// Frees untouched slices, so that there is a choice. False if there are none.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::stock_up(Node node, Slices size, Filling filling) noexcept {
  Span* const stock = take_fresh(node, size > kScatter ? size : kScatter, filling);
  if (stock == nullptr) return false;
  map_.set_tags(stock->base, stock->size, kFreeTag);
  insert_free(stock, SpanState::clean, 0);
  return true;
}

// Cuts from a free span. Without metadata for the part before it, from the start.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::cut_anywhere(Span* span, Slices size) noexcept {
  free_.remove(span);
  const Slices spare = span->size - size;
  std::uint32_t offset = 0;
  if constexpr (os::Scattering<P>) {
    offset = platform_.draw((spare < kScatter ? spare : kScatter).count + 1);
  }
  if (Span* const rest = offset != 0 ? split(span, {offset}) : nullptr) {
    file_free(span);
    span = rest;
  }
  span->zero = span->state == SpanState::clean;
  note_huge_wanted(*span, size);
  give_back_tail(span, size);
  return span;
}

}  // namespace allod::space
