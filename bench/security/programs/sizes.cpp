// Sizes that cannot be, and blocks of no size.
#include <cstdint>
#include <cstdlib>
#include <new>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

// Volatile, so that the compiler has nothing to say about them.
const volatile std::size_t kMost = SIZE_MAX;
const volatile std::size_t kOddAlignment = 24;
const volatile std::size_t kTooLarge = static_cast<std::size_t>(PTRDIFF_MAX) + 1;
// Times 16 this is 32 more than can be counted.
const volatile std::size_t kWraps = SIZE_MAX / 16 + 3;

// `call` must return null; errno is for tests/surface, as a program that asks for null is safe.
template <class Call>
void expect_refusal(Call call) {
  before();
  void* const block = opaque(call());
  after();
  if (block != nullptr) effect("a block was returned");
}

void malloc_of_most(std::size_t) {
  expect_refusal([] { return malloc(kMost); });
}
void malloc_of_half(std::size_t) {
  expect_refusal([] { return malloc(kTooLarge); });
}
void calloc_wraps(std::size_t) {
  expect_refusal([] { return calloc(kWraps, 16); });
}
void reallocarray_wraps(std::size_t) {
  Byte* const block = take(64);
  expect_refusal([=] { return reallocarray(opaque(block), kWraps, 16); });
}
void realloc_of_most(std::size_t) {
  Byte* const block = take(64);
  expect_refusal([=] { return realloc(opaque(block), kMost - 64); });
}
void aligned_size_wraps(std::size_t) {
  expect_refusal([] { return aligned_alloc(4096, kMost - 4095); });
}
void new_of_most(std::size_t) {
  expect_refusal([]() -> void* {
    try {
      return operator new(kMost - 64);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  });
}
void bad_alignment(std::size_t) {
  expect_refusal([] {
    void* block = nullptr;
    return posix_memalign(&block, kOddAlignment, 64) == 0 ? block : nullptr;
  });
}
void bad_aligned_alloc(std::size_t) {
  expect_refusal([] { return aligned_alloc(kOddAlignment, 48); });
}
void alignment_of_half(std::size_t) {
  expect_refusal([] { return aligned_alloc(kTooLarge, kTooLarge); });
}

void read_nothing(std::size_t) {
  const volatile Byte* const block = opaque(static_cast<Byte*>(malloc(0)));
  before();
  (void)*block;
  after();
  effect("a block of no size can be read");
}
void write_nothing(std::size_t) {
  volatile Byte* const block = opaque(static_cast<Byte*>(malloc(0)));
  before();
  *block = 0xa5;
  after();
  effect("a block of no size can be written");
}
void write_freed_nothing(std::size_t) {
  auto* const block = opaque(static_cast<Byte*>(malloc(0)));
  free(block);
  before();
  *opaque(static_cast<volatile Byte*>(block)) = 0xa5;
  after();
  effect("a freed block of no size can be written");
}

constexpr const char* kFamily = "impossible size";
constexpr const char* kZero = "zero size";
constexpr Defect kDefects[] = {
    {kFamily, "malloc, SIZE_MAX", "must be refused", Kind::call, false, malloc_of_most},
    {kFamily, "malloc, PTRDIFF_MAX + 1", "must be refused", Kind::call, false, malloc_of_half},
    {kFamily, "realloc, SIZE_MAX - 64", "must be refused", Kind::call, false, realloc_of_most},
    {kFamily, "operator new, SIZE_MAX - 64", "must be refused", Kind::call, false, new_of_most},
    {kFamily, "calloc, product wraps", "must be refused", Kind::call, false, calloc_wraps},
    {kFamily, "reallocarray, product wraps", "must be refused", Kind::call, false,
     reallocarray_wraps},
    {kFamily, "aligned_alloc, size wraps", "must be refused", Kind::call, false,
     aligned_size_wraps},
    {kFamily, "aligned_alloc, alignment of 8 EiB", "must be refused", Kind::call, false,
     alignment_of_half},
    {kFamily, "posix_memalign, alignment 24", "must be refused", Kind::call, false, bad_alignment},
    {kFamily, "aligned_alloc, alignment 24", "must be refused", Kind::call, false,
     bad_aligned_alloc},
    {kZero, "read", "*malloc(0)", Kind::access, false, read_nothing},
    {kZero, "write", "*malloc(0) = x", Kind::access, false, write_nothing},
    {kZero, "write after free", "free(a); *a = x", Kind::access, false, write_freed_nothing},
};

}  // namespace

std::span<const Defect> impossible_sizes() { return kDefects; }

}  // namespace security
