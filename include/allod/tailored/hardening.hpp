// What a hardened composition has besides.
#pragma once

#include "allod/heaps/quarantine.hpp"
#include "allod/heaps/sized_canary.hpp"

namespace allod::tailored {

// Used under the heap's lock. The secrets are drawn with the first block, for the heap is
// constant-initialised.
struct Hardening {
  // Blocks from here on are not filled with zeros nor looked through.
  static constexpr std::size_t kUnwatched = std::size_t{128} << 10;

  heaps::SizedCanary canary;
  random::Sequence random;
  heaps::Quarantine waiting;
  bool started = false;

  void start() noexcept {
    if (!started) canary.start();
    started = true;
  }
};

}  // namespace allod::tailored
