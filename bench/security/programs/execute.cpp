// Code in a block is called.
#include <cstring>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

#if defined(__x86_64__)
constexpr Byte kReturn[] = {0xc3};
#elif defined(__aarch64__)
constexpr Byte kReturn[] = {0xc0, 0x03, 0x5f, 0xd6};
#endif

void execute(std::size_t size) {
  Byte* const block = take(size);
  std::memcpy(block, kReturn, sizeof kReturn);
  auto* const code = reinterpret_cast<char*>(block);
  __builtin___clear_cache(code, code + sizeof kReturn);
  before();
  reinterpret_cast<void (*)()>(opaque(block))();
  after();
  effect("the heap is executable");
}

constexpr Defect kDefects[] = {
    {"executable heap", "call", "an instruction that returns", Kind::access, true, execute},
};

}  // namespace

std::span<const Defect> executions() { return kDefects; }

}  // namespace security
