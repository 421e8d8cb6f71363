// An address is freed that is not the start of a block.
#include <alloca.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

constexpr std::size_t kBytes = 256;

void free_wrongly(Byte* address, std::size_t size) {
  before();
  free(opaque(address));
  after();
  go_on(size);
}

// Not given back at the end, as it was never allocated.
void free_what_is_not_ours(Byte* memory, std::size_t size) {
  own(memory, kBytes);
  free_wrongly(memory, size);
  verify();
  disown(memory);
}

Byte* a_block(std::size_t size) {
  for (int i = 0; i < 4; ++i) take(size);
  Byte* const block = take(size);
  for (int i = 0; i < 4; ++i) take(size);
  return block;
}

void far(std::size_t size) {
  constexpr std::uintptr_t kFar = std::uintptr_t{1} << 40U;
  const auto address = reinterpret_cast<std::uintptr_t>(a_block(size)) - kFar;
  free_wrongly(reinterpret_cast<Byte*>(address), size);
}

void on_the_stack(std::size_t size) {
  a_block(size);
  alignas(64) Byte array[kBytes];
  free_what_is_not_ours(array, size);
}

void by_alloca(std::size_t size) {
  a_block(size);
  free_what_is_not_ours(static_cast<Byte*>(alloca(kBytes)), size);
}

void of_static_memory(std::size_t size) {
  a_block(size);
  alignas(64) static Byte array[kBytes];
  free_what_is_not_ours(array, size);
}

void close(std::size_t size) { free_wrongly(a_block(size) - 16, size); }
void unaligned(std::size_t size) { free_wrongly(a_block(size) + 1, size); }
void multiple_of_16(std::size_t size) { free_wrongly(a_block(size) + 16, size); }
void interior(std::size_t size) { free_wrongly(a_block(size) + size / 2, size); }

// The pattern is changed by the program itself, so the block is no longer verified.
void forged(std::size_t size) {
  Byte* const block = a_block(size);
  const std::uint64_t header[] = {0, 0x41};
  disown(block);
  own(block + 32, size - 32);
  std::memcpy(block + 16, header, sizeof header);
  free_wrongly(block + 32, size);
  verify();
  disown(block + 32);
}

void in_a_freed_region(std::size_t size) {
  Byte* const block = take_a_heap(size);
  give_back_all();
  free_wrongly(block + 16, size);
}

constexpr const char* kFamily = "invalid free";
constexpr Defect kDefects[] = {
    {kFamily, "far", "an address 1 TiB below a block", Kind::call, false, far},
    {kFamily, "stack", "an array on the stack", Kind::call, false, on_the_stack},
    {kFamily, "alloca", "memory of alloca", Kind::call, false, by_alloca},
    {kFamily, "static", "a static array", Kind::call, false, of_static_memory},
    {kFamily, "close", "16 bytes before a block", Kind::call, true, close},
    {kFamily, "unaligned", "1 byte into a block", Kind::call, true, unaligned},
    {kFamily, "multiple of 16", "16 bytes into a block", Kind::call, true, multiple_of_16},
    {kFamily, "interior", "the middle of a block", Kind::call, true, interior},
    {kFamily, "forged", "32 bytes into a block, behind what looks like the header of a small chunk",
     Kind::call, true, forged},
    {kFamily, "freed region", "16 bytes into a freed block among 3 MiB of freed ones", Kind::call,
     true, in_a_freed_region},
};

}  // namespace

std::span<const Defect> invalid_frees() { return kDefects; }

}  // namespace security
