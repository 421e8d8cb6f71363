// A program that replaces the array forms of operator new and delete only.
#include <initializer_list>
#include <new>

#include "operator_forms.hpp"
#include "replaced.hpp"

void* operator new[](std::size_t size) { return replaced::make(size); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return replaced::make(size, static_cast<std::size_t>(alignment));
}
void operator delete[](void* block) noexcept { replaced::release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { replaced::release(block); }

using namespace operator_forms;

CASE(arrays_are_the_programs_and_all_else_is_not) {
  for_each_pair([](const Allocation& allocation, const Deallocation& deallocation) {
    for (const size_t size : {size_t{0}, size_t{24}, size_t{1024}, size_t{100} * KIB}) {
      replaced::made = replaced::released = 0;
      void* block = allocate(allocation, size, 64);
      CHECK(block != nullptr, "%s of %zu", allocation.name, size);
      fill(block, size, 1);
      deallocation.release(block, size, align_val_t{64});
      const int expected = is_array(allocation) ? 1 : 0;
      CHECK(replaced::made == expected && replaced::released == expected,
            "%s of %zu and %s: %d made, %d released", allocation.name, size, deallocation.name,
            replaced::made, replaced::released);
    }
  });
}

CASE(what_is_replaced_stays_so) {
  // Long enough for every thread to have a heap of its own, and shortcuts to it.
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) {
      void* block = hidden(::operator new(hidden_size(100)));
      ::operator delete(block, size_t{100});
      void* array = hidden(::operator new[](hidden_size(100)));
      ::operator delete[](array, size_t{100});
    }
  }
  CHECK(replaced::made == 9000 && replaced::released == 9000, "%d made, %d released",
        replaced::made, replaced::released);
}
