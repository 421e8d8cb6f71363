// A cache of unwind rules, by code address.
#pragma once

#include <string.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "allod/base/cpu.hpp"
#include "allod/base/units.hpp"

namespace allod::unwind {

// The rule of nearly all places: the frame address is rsp or rbp plus an offset, the return address
// lies below it, and rbp is saved or unchanged.
struct Usual {
  static constexpr std::int32_t kUnchanged = -1;

  std::int32_t frame = 0;   // 2 * offset, plus 1 if from rbp; 0: outermost frame
  std::int32_t rbp_at = 0;  // offset below the frame address
};

struct Known {
  Address place = 0;
  const unsigned char* header = nullptr;  // of the object's search table
  std::uint64_t line = 0;                 // the entry in the table
  std::uint64_t fingerprint = 0;          // of the description; 0: the object is never unloaded
  std::uint32_t number = 0;               // the entry's index
  std::uint32_t bytes_read = 0;
  Usual rule{};
};

constexpr std::size_t kWords = sizeof(Known) / sizeof(std::uint64_t);
constexpr std::size_t kPlaceWord = offsetof(Known, place) / sizeof(std::uint64_t);
constexpr std::size_t kRuleWord = offsetof(Known, rule) / sizeof(std::uint64_t);
static_assert(sizeof(Known) % sizeof(std::uint64_t) == 0);
static_assert(sizeof(Usual) == sizeof(std::uint64_t) && offsetof(Known, rule) % 8 == 0);

// A wait-free sequence lock, for threads and signal handlers. A writer that finds another at work
// writes nothing; a reader that overlaps a write fails.
class alignas(64) Drawer {
 public:
  [[nodiscard]] bool read(Known* known) const noexcept {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version % 2 != 0) return false;
    std::uint64_t words[kWords];
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) != version) return false;
    memcpy(known, words, sizeof words);
    return true;
  }
  // For a place in an object that is never unloaded: no further check is needed.
  [[nodiscard]] ALLOD_INLINE bool read(Address place, Usual* rule) const noexcept {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    const std::uint64_t known_place = words_[kPlaceWord].load(std::memory_order_relaxed);
    const std::uint64_t known_rule = words_[kRuleWord].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (known_place != place || version % 2 != 0) return false;
    *rule = __builtin_bit_cast(Usual, known_rule);
    return version_.load(std::memory_order_relaxed) == version;
  }
  [[nodiscard]] std::uint64_t writes() const noexcept {
    return version_.load(std::memory_order_relaxed) / 2;
  }
  void write(const Known& known) noexcept {
    std::uint64_t version = version_.load(std::memory_order_relaxed);
    if (version % 2 != 0 ||
        !version_.compare_exchange_strong(version, version + 1, std::memory_order_relaxed)) {
      return;
    }
    std::atomic_thread_fence(std::memory_order_release);
    std::uint64_t words[kWords];
    memcpy(words, &known, sizeof words);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> words_[kWords]{};
};

// Two entries, so that two colliding places in one stack do not evict each other each time.
struct Pair {
  [[nodiscard]] ALLOD_INLINE bool read(Address place, Usual* rule) const noexcept {
    return drawers[0].read(place, rule) || drawers[1].read(place, rule);
  }
  [[nodiscard]] bool read(Address place, Known* known) const noexcept {
    return std::any_of(std::begin(drawers), std::end(drawers), [=](const Drawer& drawer) {
      return drawer.read(known) && known->place == place;
    });
  }
  void write(const Known& known) noexcept {
    Drawer* to = &drawers[drawers[0].writes() > drawers[1].writes() ? 1 : 0];
    // A new rule for a place replaces its old one.
    for (Drawer& drawer : drawers) {
      Known old;
      if (drawer.read(&old) && old.place == known.place) to = &drawer;
    }
    to->write(known);
  }

  Drawer drawers[2];
};

constexpr unsigned kPairBits = 9;
inline constinit Pair pairs[1 << kPairBits];

inline Pair& pair_of(Address place) noexcept { return pairs[place * kMix >> (64 - kPairBits)]; }

}  // namespace allod::unwind
