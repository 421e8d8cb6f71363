// One defect of a kind at a distance: strays KIND SIZE STATE HOW NUMBER.
// bench/security/distances.py makes the cases, and says what the words mean.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace security {
namespace {

constexpr Byte kStray = 0xa5;
constexpr std::size_t kMiB = std::size_t{1} << 20U;
// Other blocks that are freed push those out that wait.
constexpr std::size_t kOtherSize = 700;
constexpr std::size_t kPushes = 200;
Byte g_source[8 * kMiB];

// What was there is no stray byte, even by chance.
Byte other_than(Byte byte) { return static_cast<Byte>(~byte); }

void push_out(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) give_back(take(kOtherSize));
}

// A block among others of its size, whose neighbours are in this state.
Byte* arrange(std::size_t size, std::string_view state) {
  constexpr std::size_t kNew = 10;
  const std::size_t count = state == "new" ? kNew : std::clamp<std::size_t>(kMiB / size, 5, 512);
  std::vector<Byte*> blocks(count);
  for (Byte*& block : blocks) block = take(size);
  std::sort(blocks.begin(), blocks.end());
  const std::size_t chosen = state == "new" ? 2 : count / 2;
  Byte* const block = blocks[chosen];
  if (state == "free") {
    for (Byte* other : blocks) {
      if (other != block) give_back(other);
    }
    push_out(kPushes);
  } else if (state == "waiting") {
    for (std::size_t i = chosen - 2; i <= chosen + 2; ++i) {
      if (blocks[i] != block) give_back(blocks[i]);
    }
  }
  return block;
}

void store(Byte* address) {
  auto* const byte = opaque(static_cast<volatile Byte*>(address));
  *byte = other_than(*byte);
}
// From the block to the byte.
void copy(Byte* block, std::size_t size, Byte* to) {
  Byte* const begin = to < block ? to : block;
  const auto bytes = static_cast<std::size_t>(to < block ? block + size - to : to + 1 - block);
  if (bytes > sizeof g_source) _exit(3);
  std::memset(g_source, kStray, bytes);
  g_source[to - begin] = other_than(*opaque(to));
  std::memcpy(opaque(begin), g_source, bytes);
}

// `distance` from the block's end, or, if it is negative, from its beginning.
void write_outside(std::size_t size, std::string_view state, std::string_view how, long distance) {
  Byte* const block = arrange(size, state);
  // From here on it may hold anything.
  disown(block);
  Byte* const to = distance < 0 ? block + distance : block + size + distance;
  before();
  how == "memcpy" ? copy(block, size, to) : store(to);
  after();
  verify();
  if (how == "store, kept") return;
  own(block, size);
  give_back(block);
  go_on(size);
}
// After so many frees of others.
void write_after_free(std::size_t size, std::string_view state, std::string_view how, long frees) {
  Byte* const block = arrange(size, "used");
  give_back(block);
  push_out(static_cast<std::size_t>(frees));
  const std::size_t offset = state == "first" ? 0 : state == "middle" ? size / 2 : size - 1;
  before();
  store(block + offset);
  after();
  verify();
  if (how == "store, kept") return;
  push_out(kPushes);
  go_on(size);
}
// Claims a size that is `more` than was asked for.
void delete_sized(std::size_t size, std::string_view state, long more) {
  const bool is_array = state == "array";
  void* const block = opaque(is_array ? operator new[](size) : operator new(size));
  const std::size_t claimed = size + static_cast<std::size_t>(more);
  before();
  is_array ? operator delete[](block, claimed) : operator delete(block, claimed);
  after();
  go_on(size);
}

}  // namespace
}  // namespace security

int main(int count, char** arguments) {
  if (count != 6) {
    security::say("usage: strays KIND SIZE STATE HOW NUMBER\n");
    return 2;
  }
  const std::string_view kind = arguments[1];
  const std::size_t size = std::strtoul(arguments[2], nullptr, 10);
  const std::string_view state = arguments[3];
  const std::string_view how = arguments[4];
  const long number = std::strtol(arguments[5], nullptr, 10);
  security::say_who_serves();
  if (kind == "stray write") {
    security::write_outside(size, state, how, number);
  } else if (kind == "write after free") {
    security::write_after_free(size, state, how, number);
  } else if (kind == "sized delete") {
    security::delete_sized(size, state, number);
  } else {
    security::say("there is no such kind\n");
    return 2;
  }
  security::verify();
  if (how != "store, kept") security::give_back_all();
  security::say("\n@@done\n");
  return 0;
}
