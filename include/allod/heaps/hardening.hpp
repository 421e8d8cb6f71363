// State of a hardened heap; see heaps/hardened.hpp.
#pragma once

#include "allod/heap/misuse.hpp"
#include "allod/heaps/quarantine.hpp"
#include "allod/heaps/sized_canary.hpp"

namespace allod::heaps {

using heap::MisuseKind;

// Misuse that was detected in a turn, and is reported after it.
struct Finding {
  MisuseKind kind = MisuseKind::overflow;
  std::uint32_t block_bytes = 0;
  const void* block = nullptr;
  const void* address = nullptr;
};

// Keeps the first few findings, which are enough.
class Findings {
 public:
  void add(const Finding& finding) noexcept {
    if (count_ < kMost) found_[count_++] = finding;
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  template <class Visit>
  void for_each(Visit&& visit) const noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) visit(found_[i]);
  }

 private:
  static constexpr std::uint32_t kMost = 8;
  Finding found_[kMost];
  std::uint32_t count_ = 0;
};

// Used in turns on the heap. The canary never changes during its life.
struct Hardening {
  SizedCanary canary;
  random::Sequence random;
  Quarantine waiting;
  Findings findings;
};

}  // namespace allod::heaps
