// A program writes beyond the end of a block, or before its beginning. The block is full: the
// program has asked for all the bytes that its size class gives. It lies in the middle of others.
#include <algorithm>
#include <cstring>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

enum class Where { behind, before };
enum class How { store, copy };

constexpr Byte kStray = 0xa5;
// What was there is no stray byte, even by chance: canaries are random.
Byte other_than(Byte byte) { return static_cast<Byte>(~byte); }
constexpr std::size_t kMostBytes = (1U << 20U) + (1U << 19U);
Byte g_source[kMostBytes];

void store(Byte* address, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto* const byte = opaque(static_cast<volatile Byte*>(address + i));
    *byte = other_than(*byte);
  }
}

template <Where where, How how, std::size_t amount>
void overrun(std::size_t given) {
  const std::size_t size = full_size(given);
  std::memset(g_source, kStray, sizeof g_source);
  Byte* const block = take_a_heap(size);
  // From here on it may hold anything; it is freed at the end.
  disown(block);
  Byte* const begin = where == Where::behind ? block + size : block - amount;
  before();
  if constexpr (how == How::store) {
    store(begin, amount);
  } else if constexpr (where == Where::behind) {
    g_source[size] = other_than(*opaque(begin));
    std::memcpy(opaque(block), g_source, std::min(size + amount, sizeof g_source));
  } else {
    g_source[0] = other_than(*opaque(begin));
    std::memcpy(opaque(begin), g_source, amount + 1);
  }
  after();
  verify();
  own(block, size);
  go_on(size);
}

constexpr std::size_t kMiB = std::size_t{1} << 20U;

template <Where where, How how, std::size_t amount>
constexpr Defect defect(const char* name, const char* about) {
  const char* const family = where == Where::behind ? "overflow" : "underflow";
  return {family, name, about, Kind::access, true, overrun<where, how, amount>};
}

constexpr Defect kDefects[] = {
    defect<Where::behind, How::store, 1>("1 byte, store", "a store behind a block"),
    defect<Where::behind, How::copy, 1>("1 byte, memcpy", "a copy that is 1 byte too long"),
    defect<Where::behind, How::store, 32>("32 bytes, store", "stores behind a block"),
    defect<Where::behind, How::copy, 32>("32 bytes, memcpy", "a copy that is 32 bytes too long"),
    defect<Where::behind, How::store, kMiB>("1 MiB, store", "stores behind a block"),
    defect<Where::behind, How::copy, kMiB>("1 MiB, memcpy", "a copy that is 1 MiB too long"),
    defect<Where::before, How::store, 1>("1 byte, store", "a store before a block"),
    defect<Where::before, How::copy, 1>("1 byte, memcpy", "a copy that begins 1 byte too early"),
    defect<Where::before, How::store, 32>("32 bytes, store", "stores before a block"),
    defect<Where::before, How::copy, 32>("32 bytes, memcpy",
                                         "a copy that begins 32 bytes too early"),
    defect<Where::before, How::store, kMiB>("1 MiB, store", "stores before a block"),
    defect<Where::before, How::copy, kMiB>("1 MiB, memcpy", "a copy that begins 1 MiB too early"),
};

}  // namespace

std::span<const Defect> overruns() { return kDefects; }

}  // namespace security
