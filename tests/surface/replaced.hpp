// What a program gives that replaces some forms of operator new and delete: blocks with a head of
// its own before them, so that whoever frees them in another way is found out.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cases.h"

namespace replaced {

inline int made = 0;
inline int released = 0;
// What make() does instead, if anything: it throws.
inline void (*refuses)() = nullptr;

struct Head {
  std::size_t mark;
  std::size_t distance;  // of the block from what malloc gave

  static constexpr std::size_t kMade = 0x600dc0de;
  static constexpr std::size_t kReleased = 0xdeadc0de;
};

inline void* make(std::size_t size, std::size_t alignment = sizeof(Head)) {
  if (refuses != nullptr) refuses();
  const std::size_t distance = alignment < sizeof(Head) ? sizeof(Head) : alignment;
  if (size > PTRDIFF_MAX - 2 * distance) throw std::bad_alloc();
  const std::size_t bytes = (distance + size + distance - 1) / distance * distance;
  auto* const start = static_cast<char*>(std::aligned_alloc(distance, bytes));
  if (start == nullptr) throw std::bad_alloc();
  const Head head{Head::kMade, distance};
  std::memcpy(start + distance - sizeof head, &head, sizeof head);
  ++made;
  return start + distance;
}

inline void release(void* block) {
  if (block == nullptr) return;
  auto* const start = static_cast<char*>(block);
  Head head;
  std::memcpy(&head, start - sizeof head, sizeof head);
  CHECK(head.mark == Head::kMade, "%p has not been made here, or is freed again", block);
  head.mark = Head::kReleased;
  std::memcpy(start - sizeof head, &head, sizeof head);
  ++released;
  std::free(start - head.distance);
}

}  // namespace replaced
