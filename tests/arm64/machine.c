// What is different on arm64: tagged pointers, wider addresses, larger pages, and the thread that
// the library starts by a system call of its own.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"

static void* with_top_byte(void* block, uint64_t byte) {
  return hidden((void*)((uintptr_t)block | byte << 56));
}

// The processor ignores the top byte of an address, the allocator does not: no block has that
// address, so it is somebody else's.
CASE(tagged_pointers_are_foreign) {
  static const size_t sizes[] = {16, 1000, 100 * KIB, 20 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    unsigned char* block = obtain(sizes[i]);
    fill(block, sizes[i], i);
    void* tagged = with_top_byte(block, 0xa5);
    CHECK(malloc_usable_size(tagged) == 0, "a tagged pointer has a size");
    free(tagged);
    void* other = obtain(sizes[i]);
    CHECK(other != block, "the block was freed");
    CHECK(holds(block, sizes[i], i), "the block was written to");
    free(other);
    free(block);
  }
}

// With 52-bit virtual addresses a program may have mapped memory up there.
CASE(addresses_above_48_bits_are_foreign) {
  for (unsigned bit = 47; bit < 64; ++bit) {
    free(hidden((void*)((uintptr_t)1 << bit)));
    free(hidden((void*)(((uintptr_t)1 << bit) - 16)));
  }
  free(hidden((void*)UINTPTR_MAX));
  free(obtain(1));
}

// There are twice as many addresses as on x86-64, and a count of slices could overflow. (An
// emulator has tables for what it maps: nothing here may come near to being served.)
CASE(requests_of_all_addresses_are_refused) {
  void* block = obtain(20 * MIB);
  for (unsigned bit = 48; bit < 63; ++bit) {
    for (int offset = -70000; offset <= 70000; offset += 35000) {
      const size_t size = ((size_t)1 << bit) + (size_t)offset;
      CHECK(hidden(malloc(hidden_size(size))) == NULL, "malloc(%zu)", size);
      CHECK(hidden(realloc(block, hidden_size(size))) == NULL, "realloc(p, %zu)", size);
    }
    CHECK(hidden(memalign((size_t)1 << bit, 1)) == NULL, "memalign at bit %u", bit);
  }
  free(block);
}
