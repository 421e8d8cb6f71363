// <string.h> functions for the preloaded libraries alone, hidden from the program. They serve our
// own calls and those that compilers make of loops. The C library's may be interposed by code that
// allocates, and we call these with locks held, with all threads stopped, and on threads of our
// own. Contents of blocks are still copied and cleared by the C library, see allod/base/bytes.hpp.
//
// This file is compiled so that no loop becomes a call of the function that it implements.
#include <stddef.h>
#include <stdint.h>

#include "allod/base/long_fill.hpp"

namespace {

using Byte = unsigned char;
using Half = uint32_t;
using Word = uint64_t;
using Quad [[gnu::vector_size(16)]] = Byte;

// Unaligned access.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Loose {
  T value;
};
template <class T>
[[gnu::always_inline]] inline T load(const Byte* from) noexcept {
  return reinterpret_cast<const Loose<T>*>(from)->value;
}
template <class T>
[[gnu::always_inline]] inline void store(Byte* to, const T& value) noexcept {
  reinterpret_cast<Loose<T>*>(to)->value = value;
}

template <class T, size_t kCount>
struct Row {
  T parts[kCount];
};
template <class T, size_t kCount>
[[gnu::always_inline]] inline Row<T, kCount> load_row(const Byte* from) noexcept {
  Row<T, kCount> row;
  for (size_t i = 0; i < kCount; ++i) row.parts[i] = load<T>(from + i * sizeof(T));
  return row;
}
template <class T, size_t kCount>
[[gnu::always_inline]] inline void store_row(Byte* to, const Row<T, kCount>& row) noexcept {
  for (size_t i = 0; i < kCount; ++i) store<T>(to + i * sizeof(T), row.parts[i]);
}
using Round = Row<Quad, 4>;
constexpr size_t kRound = 4 * sizeof(Quad);

[[gnu::always_inline]] inline Round load_round(const Byte* from) noexcept {
  return load_row<Quad, 4>(from);
}

// Moves both ends, which may overlap: for kCount to 2 * kCount parts. Reads everything before it
// writes.
template <class T, size_t kCount = 1>
[[gnu::always_inline]] inline void move_ends(Byte* to, const Byte* from, size_t bytes) noexcept {
  const size_t last = bytes - kCount * sizeof(T);
  const auto head = load_row<T, kCount>(from);
  const auto tail = load_row<T, kCount>(from + last);
  store_row<T, kCount>(to, head);
  store_row<T, kCount>(to + last, tail);
}
[[gnu::always_inline]] inline void move_few(Byte* to, const Byte* from, size_t bytes) noexcept {
  if (bytes == 0) return;
  const Byte first = from[0];
  const Byte middle = from[bytes / 2];
  const Byte last = from[bytes - 1];
  to[0] = first;
  to[bytes / 2] = middle;
  to[bytes - 1] = last;
}
[[gnu::hot]] void move_up(Byte* to, const Byte* from, size_t bytes) noexcept {
  const Round head = load_round(from);
  for (size_t left = bytes; left > kRound; left -= kRound) {
    store_row<Quad, 4>(to + left - kRound, load_round(from + left - kRound));
  }
  store_row<Quad, 4>(to, head);
}
[[gnu::hot]] void move_down(Byte* to, const Byte* from, size_t bytes) noexcept {
  const Round tail = load_round(from + bytes - kRound);
  for (size_t done = 0; done < bytes - kRound; done += kRound) {
    store_row<Quad, 4>(to + done, load_round(from + done));
  }
  store_row<Quad, 4>(to + bytes - kRound, tail);
}

template <class T, size_t kCount = 1>
[[gnu::always_inline]] inline void fill_ends(Byte* to, const T& filler, size_t bytes) noexcept {
  for (size_t i = 0; i < kCount; ++i) {
    store<T>(to + i * sizeof(T), filler);
    store<T>(to + bytes - (i + 1) * sizeof(T), filler);
  }
}
[[gnu::hot]] void fill_long(Byte* to, const Quad& filler, size_t bytes) noexcept {
  if (bytes >= allod::kLongFill) {
    fill_ends<Quad>(to, filler, bytes);
    const size_t skipped = -reinterpret_cast<uintptr_t>(to) % sizeof(Quad);
    return allod::fill_words(to + skipped, load<Word>(reinterpret_cast<const Byte*>(&filler)),
                             (bytes - skipped) / sizeof(Word));
  }
  Round round;
  for (Quad& part : round.parts) part = filler;
  for (size_t done = 0; done < bytes - kRound; done += kRound) {
    store_row<Quad, 4>(to + done, round);
  }
  store_row<Quad, 4>(to + bytes - kRound, round);
}

// Sets the highest bit of the first zero byte, and none below it; 0 if no byte is zero.
constexpr Word kOnes = 0x0101010101010101;
constexpr uint64_t zeros_of(uint64_t word) noexcept { return (word - kOnes) & ~word & kOnes << 7; }

}  // namespace

// Hot: placed beside what every program needs, see ALLOD_HOT.
extern "C" {

[[gnu::hot]] void* memmove(void* target, const void* source, size_t bytes) noexcept {
  auto* const to = static_cast<Byte*>(target);
  const auto* const from = static_cast<const Byte*>(source);
  if (bytes < 4) {
    move_few(to, from, bytes);
  } else if (bytes < 8) {
    move_ends<Half>(to, from, bytes);
  } else if (bytes < 16) {
    move_ends<Word>(to, from, bytes);
  } else if (bytes < 32) {
    move_ends<Quad>(to, from, bytes);
  } else if (bytes < 64) {
    move_ends<Quad, 2>(to, from, bytes);
  } else if (bytes <= 128) {
    move_ends<Quad, 4>(to, from, bytes);
  } else if (to - from < 0 || static_cast<size_t>(to - from) >= bytes) {
    move_down(to, from, bytes);
  } else {
    move_up(to, from, bytes);
  }
  return target;
}
[[gnu::hot]] void* memcpy(void* target, const void* source, size_t bytes) noexcept {
  return memmove(target, source, bytes);
}
[[gnu::hot]] void* memset(void* target, int byte, size_t bytes) noexcept {
  auto* const to = static_cast<Byte*>(target);
  const uint64_t word = static_cast<Byte>(byte) * kOnes;
  Quad filler;
  for (size_t i = 0; i < sizeof filler; ++i) filler[i] = static_cast<Byte>(byte);
  if (bytes < 4) {
    if (bytes == 0) return target;
    to[0] = to[bytes / 2] = to[bytes - 1] = static_cast<Byte>(byte);
  } else if (bytes < 8) {
    fill_ends<Half>(to, static_cast<uint32_t>(word), bytes);
  } else if (bytes < 16) {
    fill_ends<Word>(to, word, bytes);
  } else if (bytes < 32) {
    fill_ends<Quad>(to, filler, bytes);
  } else if (bytes < 64) {
    fill_ends<Quad, 2>(to, filler, bytes);
  } else {
    fill_long(to, filler, bytes);
  }
  return target;
}
[[gnu::hot]] int memcmp(const void* one, const void* other, size_t bytes) noexcept {
  const auto* const a = static_cast<const Byte*>(one);
  const auto* const b = static_cast<const Byte*>(other);
  size_t i = 0;
  while (i + sizeof(Word) <= bytes && load<Word>(a + i) == load<Word>(b + i)) i += sizeof(Word);
  while (i < bytes && a[i] == b[i]) ++i;
  return i == bytes ? 0 : a[i] - b[i];
}
void* memchr(const void* where, int byte, size_t bytes) noexcept {
  const auto* const at = static_cast<const Byte*>(where);
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] == static_cast<Byte>(byte)) return const_cast<Byte*>(at + i);
  }
  return nullptr;
}
size_t strnlen(const char* text, size_t most) noexcept {
  size_t i = 0;
  while (i < most && reinterpret_cast<uintptr_t>(text + i) % sizeof(Word) != 0) {
    if (text[i] == '\0') return i;
    ++i;
  }
  // An aligned word does not cross a page.
  const auto* const bytes = reinterpret_cast<const Byte*>(text);
  while (i < most && zeros_of(load<Word>(bytes + i)) == 0) i += sizeof(Word);
  while (i < most && text[i] != '\0') ++i;
  return i < most ? i : most;
}
size_t strlen(const char* text) noexcept { return strnlen(text, SIZE_MAX); }
int strcmp(const char* one, const char* other) noexcept {
  while (*one == *other && *one != '\0') ++one, ++other;
  return static_cast<Byte>(*one) - static_cast<Byte>(*other);
}
char* strchr(const char* text, int letter) noexcept {
  for (; *text != static_cast<char>(letter); ++text) {
    if (*text == '\0') return nullptr;
  }
  return const_cast<char*>(text);
}
char* strstr(const char* text, const char* part) noexcept {
  for (;; ++text) {
    size_t i = 0;
    while (part[i] != '\0' && text[i] == part[i]) ++i;
    if (part[i] == '\0') return const_cast<char*>(text);
    if (*text == '\0') return nullptr;
  }
}

}  // extern "C"
