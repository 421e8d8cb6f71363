// Remote frees: a mark in the slab, and the slab in the inbox of its owner.
#pragma once

#include "allod/slab/slab.hpp"

namespace allod::slab {

inline Slab* Inbox::next(const Slab* slab) noexcept { return slab->next_in_inbox_; }

inline bool Inbox::push(Slab* slab) noexcept {
  Slab* head = head_.load(std::memory_order_relaxed);
  do {
    if (head == closed()) return false;
    slab->next_in_inbox_ = head;
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

inline void Inbox::accept(Slab* slab) noexcept { slab->announced_.store(0); }

// Orders the announcement and the owner's collection like Dekker's algorithm: here the bits are set
// before `announced` is read; there `announced` is cleared before the bits are read. All of it is
// sequentially consistent.
inline void Slab::announce() noexcept {
  if (announced_.load() != 0 || announced_.exchange(1) != 0) return;
  for (;;) {
    Owner* const owner = owner_.load();
    if (owner != nullptr) {
      // A closed inbox means that its owner is ending, and has already set another owner, or none.
      if (owner->inbox.push(this)) return;
      continue;
    }
    // The adopter of an orphan collects its bits after becoming its owner.
    announced_.store(0);
    if (owner_.load() == nullptr || announced_.exchange(1) != 0) return;
  }
}

template <class OnDouble>
inline std::uint32_t Slab::collect(OnDouble&& on_double) noexcept {
  std::uint32_t gained = 0;
  for (std::uint32_t word = 0; word < words(); ++word) {
    if (remote_bits()[word].load() == 0) continue;
    Word bits = remote_bits()[word].exchange(0);
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

}  // namespace allod::slab
