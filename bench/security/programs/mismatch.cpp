// A block is given back in another way than it was asked for: with another size, or by another
// name.
#include <cstdlib>
#include <new>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

// Where the compiler keeps the number of elements of an array that needs destructors.
constexpr std::size_t kCookie = sizeof(std::size_t);

Byte* new_block(std::size_t size) {
  for (int i = 0; i < 4; ++i) take(size);
  Byte* const block = opaque(static_cast<Byte*>(operator new(size)));
  for (int i = 0; i < 4; ++i) take(size);
  return block;
}

template <class Release>
void release_wrongly(std::size_t size, Release release) {
  before();
  release();
  after();
  go_on(size);
}

void delete_claims(std::size_t size, std::size_t claimed) {
  Byte* const block = new_block(size);
  release_wrongly(size, [=] { operator delete(block, claimed); });
  go_on(claimed);
}
void claims_more(std::size_t size) { delete_claims(size, 8 * size); }
void claims_less(std::size_t size) { delete_claims(size, size / 4); }

void array_by_scalar(std::size_t size) {
  void* const block = opaque(operator new[](size));
  release_wrongly(size, [=] { operator delete(block); });
}
void scalar_by_array(std::size_t size) {
  void* const block = new_block(size);
  release_wrongly(size, [=] { operator delete[](block); });
}
// What `delete p` does with p = new T[n], and `delete[] p` with p = new T, where T has a
// destructor.
void array_with_destructors_by_scalar(std::size_t size) {
  auto* const block = opaque(static_cast<Byte*>(operator new[](size + kCookie)));
  release_wrongly(size + kCookie, [=] { operator delete(opaque(block + kCookie)); });
}
void scalar_with_destructor_by_array(std::size_t size) {
  Byte* const block = new_block(size);
  own(block, size);
  release_wrongly(size, [=] { operator delete[](opaque(block - kCookie)); });
}
void new_by_free(std::size_t size) {
  void* const block = new_block(size);
  release_wrongly(size, [=] { free(block); });
}
void malloc_by_delete(std::size_t size) {
  void* const block = opaque(malloc(size));
  release_wrongly(size, [=] { operator delete(block); });
}

constexpr const char* kSize = "wrong size";
constexpr const char* kName = "mismatched delete";
constexpr Defect kDefects[] = {
    {kSize, "more", "a sized delete claims eight times the size", Kind::call, true, claims_more},
    {kSize, "less", "a sized delete claims a quarter of the size", Kind::call, true, claims_less},
    {kName, "array by scalar", "delete of new[], no destructors", Kind::call, true,
     array_by_scalar},
    {kName, "scalar by array", "delete[] of new, no destructor", Kind::call, true, scalar_by_array},
    {kName, "array by scalar, destructors", "delete of new[]: 8 bytes into the block", Kind::call,
     true, array_with_destructors_by_scalar},
    {kName, "scalar by array, destructor", "delete[] of new: 8 bytes before the block", Kind::call,
     true, scalar_with_destructor_by_array},
    {kName, "new by free", "free of new", Kind::call, true, new_by_free},
    {kName, "malloc by delete", "delete of malloc", Kind::call, true, malloc_by_delete},
};

}  // namespace

std::span<const Defect> mismatches() { return kDefects; }

}  // namespace security
