// Random numbers: secrets from the system, and fast ones.
#pragma once

#include "allod/base/bits.hpp"
#include "allod/base/cpu.hpp"
#include "allod/base/secret.hpp"
#include "allod/base/thread_local.hpp"
#include "allod/base/units.hpp"

namespace allod::random {

// XOR of both halves of the product, after Wang Yi's wyhash.
[[nodiscard]] constexpr ALLOD_INLINE std::uint64_t folded_product(std::uint64_t a,
                                                                  std::uint64_t b) noexcept {
#if defined(__x86_64__)
  // Compilers take a pair of registers for the product, and spill it.
  if (!__builtin_is_constant_evaluated()) {
    std::uint64_t upper;
    __asm__("mulq %2" : "+a"(a), "=d"(upper) : "rm"(b) : "cc");
    return a ^ upper;
  }
#endif
  const WideProduct product = wide_product(a, b);
  return product.low ^ product.high;
}

// Maps a place to a word that is unpredictable without the key, even from other places' words. A
// single product would leak: its upper half hardly changes between neighbouring places, so eight
// words in a row would reveal both halves. So the bytes are swapped before the last multiplication,
// which makes neighbours differ most in the upper bits.
struct PlaceKey {
  std::uint64_t inner = 1;
  std::uint64_t mask = 0;
  std::uint64_t outer = 1;

  [[nodiscard]] ALLOD_INLINE std::uint64_t word_of(std::uint64_t at) const noexcept {
    return word_of(at, inner, mask, outer);
  }
  // The same for a key in variables of its own.
  [[nodiscard]] static ALLOD_INLINE std::uint64_t word_of(std::uint64_t at, std::uint64_t inner,
                                                          std::uint64_t mask,
                                                          std::uint64_t outer) noexcept {
    return folded_product(__builtin_bswap64(at * inner) ^ mask, outer);
  }
};

[[nodiscard]] inline PlaceKey secret_key() noexcept {
  return {secret() | 1, secret(), secret() | 1};
}

// D. J. Bernstein's ChaCha with 8 rounds: block `number` of the stream.
struct StreamBlock {
  std::uint64_t words[8];
};
[[nodiscard]] inline StreamBlock stream_block(const std::uint64_t (&key)[4],
                                              std::uint64_t number) noexcept {
  using Row [[gnu::vector_size(16)]] = std::uint32_t;
  Row start[4] = {{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, {}, {}, {}};
  __builtin_memcpy(&start[1], key, sizeof key);
  __builtin_memcpy(&start[3], &number, sizeof number);
  Row a = start[0];
  Row b = start[1];
  Row c = start[2];
  Row d = start[3];
  const auto turn = [](Row row, unsigned bits) noexcept {
    return row << bits | row >> (32 - bits);
  };
  const auto quarter = [&]() noexcept {
    a += b, d = turn(d ^ a, 16);
    c += d, b = turn(b ^ c, 12);
    a += b, d = turn(d ^ a, 8);
    c += d, b = turn(b ^ c, 7);
  };
  for (int pair = 0; pair < 4; ++pair) {
    quarter();
    b = __builtin_shufflevector(b, b, 1, 2, 3, 0);
    c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
    d = __builtin_shufflevector(d, d, 3, 0, 1, 2);
    quarter();
    b = __builtin_shufflevector(b, b, 3, 0, 1, 2);
    c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
    d = __builtin_shufflevector(d, d, 1, 2, 3, 0);
  }
  const Row end[4] = {a + start[0], b + start[1], c + start[2], d + start[3]};
  StreamBlock block;
  __builtin_memcpy(&block, end, sizeof block);
  return block;
}

// A random stream. Known outputs reveal neither earlier nor later ones, which matters because
// pointers that leak derive from them. Takes a new key from the system every 512 KiB. Not
// thread-safe.
class Sequence {
 public:
  constexpr Sequence() noexcept = default;

  [[nodiscard]] std::uint64_t word() noexcept {
    // A signal handler in between leaves this word in place, or replaces it by another.
    std::uint32_t left = left_;
    if (__builtin_expect(left == 0, 0)) left = refill();
    left_ = --left;
    return words_[left];
  }
  // Uniform in [0, bound).
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((word() >> 32) * bound >> 32);
  }
  // Shuffles at most 64 items. Eight items share a random word: each uses the rest that the last
  // product leaves, after D. Lemire. The bias is at most 1 in 65,536.
  void shuffle(void** items, std::uint32_t count) noexcept {
    for (std::uint32_t left = count; left > 1;) {
      std::uint64_t rest = word();
      const std::uint32_t stop = left > 8 ? (left - 1) / 8 * 8 : 1;
      for (; left > stop; --left) {
        const WideProduct product = wide_product(rest, left);
        rest = product.low;
        const auto chosen = static_cast<std::uint32_t>(product.high);
        void* const item = items[chosen];
        items[chosen] = items[left - 1];
        items[left - 1] = item;
      }
    }
  }
  // Takes a new key from the system.
  void reseed() noexcept { left_ = number_ = 0; }

 private:
  static constexpr std::uint32_t kWords = sizeof(StreamBlock) / sizeof(std::uint64_t);
  static constexpr std::uint32_t kBlocks = 8192;

  ALLOD_NOINLINE ALLOD_HOT std::uint32_t refill() noexcept {
    if (number_ % kBlocks == 0) {
      for (std::uint64_t& word : key_) word = secret();
    }
    const StreamBlock block = stream_block(key_, number_++);
    __builtin_memcpy(words_, block.words, sizeof words_);
    return kWords;
  }

  std::uint64_t words_[kWords] = {};
  std::uint64_t key_[4] = {};
  std::uint32_t number_ = 0;
  std::uint32_t left_ = 0;
};

struct OfThread {
  ALLOD_THREAD_LOCAL_ZEROS(Sequence, sequence);
};
// The calling thread's.
[[nodiscard]] ALLOD_INLINE Sequence& own() noexcept { return OfThread::sequence; }

[[nodiscard]] inline std::uint64_t word() noexcept { return own().word(); }
inline void reseed() noexcept { own().reseed(); }
inline void shuffle(void** items, std::uint32_t count) noexcept { own().shuffle(items, count); }

}  // namespace allod::random
