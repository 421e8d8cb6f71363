// What a program wishes of the pages of a heap of its own.
#pragma once

#include "allod.h"
#include "allod/space/page_source.hpp"

namespace allod {

// False if an option is unknown or options contradict each other.
[[nodiscard]] inline bool read_wishes(const allod_heap_options_t& options,
                                      space::PageWishes& wishes) noexcept {
  if (options.pages > ALLOD_PAGES_1G || options.purge > ALLOD_PURGE_AFTER_DELAY) return false;
  wishes.pages = static_cast<space::Pages>(options.pages);
  wishes.purging = static_cast<space::Purging>(options.purge);
  wishes.locked = options.locked != 0;
  wishes.nodes = options.nodes;
  wishes.delay_ms = options.purge_delay_ms;
  if (wishes.delay_ms != 0 && wishes.purging != space::Purging::after_delay) return false;
  const bool stays = wishes.locked || options.pages >= ALLOD_PAGES_2M;
  const bool goes =
      wishes.purging == space::Purging::at_once || wishes.purging == space::Purging::after_delay;
  if (stays && goes) return false;
  if (options.memory == nullptr) return options.memory_bytes == 0;
  const bool is_all = wishes.are_any();
  wishes.buffer = address_of(options.memory);
  wishes.buffer_bytes = options.memory_bytes;
  return !is_all && options.memory_bytes >= kSliceBytes;
}

}  // namespace allod
