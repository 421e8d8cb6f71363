// Remote frees: a mark in the slab, and the slab in the inbox of its owner.
#pragma once

#include "allod/slab/slab.hpp"

namespace allod::slab {

inline Slab* Inbox::next(const Slab* slab) noexcept { return Slab::below(slab->link_.load()); }

// The first attempt takes the inbox for empty. An attempt that fails brings the cache line as well
// as a load would, and to write at once.
inline bool Inbox::push(Slab* slab) noexcept {
  Slab* head = nullptr;
  do {
    if (head == closed()) return false;
    slab->link_.store(Slab::link_to(head), std::memory_order_relaxed);
  } while (!head_.compare_exchange_weak(head, slab));
  return true;
}

inline Slab* Inbox::take_last() noexcept {
  Slab* head = head_.load();
  do {
    if (head == nullptr || head == closed()) return nullptr;
  } while (!head_.compare_exchange_weak(head, next(head)));
  accept(head);
  return head;
}

// Returns the slab below.
inline Slab* Inbox::accept(Slab* slab) noexcept { return Slab::below(slab->link_.exchange(0)); }

// Orders the announcement and the owner's collection like Dekker's algorithm: here the bits are set
// before the link is read; there the link is cleared before the bits are read. All of it is
// sequentially consistent.
inline void Slab::announce() noexcept {
  if (!claim()) return;
  for (;;) {
    Owner* const owner = owner_.load();
    if (owner != nullptr) {
      // A closed inbox means that its owner is ending, and has already set another owner, or none.
      if (owner->inbox.push(this)) return;
      continue;
    }
    // The adopter of an orphan collects its bits after becoming its owner.
    link_.store(0);
    if (owner_.load() == nullptr || !claim()) return;
  }
}

inline bool Slab::claim() noexcept {
  Address none = 0;
  return link_.load() == 0 && link_.compare_exchange_strong(none, link_to(nullptr));
}

template <class OnDouble>
inline std::uint32_t Slab::collect(OnDouble&& on_double) noexcept {
  std::uint32_t gained = 0;
  for (std::uint32_t word = 0; word < words(); ++word) {
    Word bits = take_remote_word(word);
    if (bits == 0) continue;
    const Word doubled = bits & free_bits()[word];
    for (Word rest = doubled; rest != 0; rest &= rest - 1) {
      on_double(word * kWordBits + lowest_bit(rest));
    }
    bits &= ~doubled;
    free_bits()[word] |= bits;
    gained += count_bits(bits);
    if (word < first_word_) first_word_ = word;
  }
  free_count_ += gained;
  return gained;
}

template <class Visit>
inline void Slab::take_marks(Visit&& visit) noexcept {
  for (std::uint32_t word = 0; word < words(); ++word) {
    for (Word rest = take_remote_word(word); rest != 0; rest &= rest - 1) {
      visit(word * kWordBits + lowest_bit(rest));
    }
  }
}

inline std::uint32_t Slab::remote_count() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t word = 0; word < words(); ++word) {
    count += count_bits(remote_word(word).load(std::memory_order_relaxed));
  }
  return count;
}

inline void Slab::forget_remote() noexcept {
  for (std::uint32_t word = 0; word < words(); ++word) {
    remote_word(word).store(0, std::memory_order_relaxed);
  }
}

}  // namespace allod::slab
