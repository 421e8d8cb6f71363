// A program that replaces the single forms of operator new and delete, from which the standard has
// all the others made.
#include <new>
#include <string>
#include <vector>

#include "operator_forms.hpp"
#include "replaced.hpp"

void* operator new(std::size_t size) { return replaced::make(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return replaced::make(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { replaced::release(block); }
void operator delete(void* block, std::align_val_t) noexcept { replaced::release(block); }

using namespace operator_forms;

CASE(every_form_is_made_of_those_of_the_program) {
  static const size_t sizes[] = {0, 1, 24, 100, 1024, 5000, 100 * KIB, 5 * MIB};
  for_each_pair([](const Allocation& allocation, const Deallocation& deallocation) {
    for (const size_t size : sizes) {
      replaced::made = replaced::released = 0;
      void* block = allocate(allocation, size, 64);
      CHECK(block != nullptr && replaced::made == 1, "%s of %zu made %d blocks", allocation.name,
            size, replaced::made);
      CHECK(is_aligned(block, allocation.aligned ? 64 : 16), "%s at %p", allocation.name, block);
      fill(block, size, 1);
      CHECK(holds(block, size, 1), "%s of %zu", allocation.name, size);
      deallocation.release(block, size, align_val_t{64});
      CHECK(replaced::released == 1, "%s after %s of %zu released %d blocks", deallocation.name,
            allocation.name, size, replaced::released);
    }
  });
}

CASE(null_is_left_to_the_program) {
  for (const Deallocation& deallocation : kDeallocations) {
    deallocation.release(nullptr, 0, align_val_t{64});
  }
}

CASE(forms_that_do_not_throw_catch_what_the_program_throws) {
  for (const Allocation& allocation : kAllocations) {
    replaced::refuses = [] { throw std::bad_alloc(); };
    bool caught = false;
    void* block = nullptr;
    try {
      block = allocate(allocation, 100, 64);
    } catch (const std::bad_alloc&) {
      caught = true;
    }
    replaced::refuses = nullptr;
    CHECK(block == nullptr && caught == allocation.throwing, "%s", allocation.name);
  }
}

CASE(containers_and_the_runtime_use_the_forms_of_the_program) {
  replaced::made = replaced::released = 0;
  {
    std::vector<std::string> words;
    for (int i = 0; i < 5000; ++i) words.push_back(std::string(static_cast<size_t>(i % 300), 'x'));
    auto* array = new std::string[50];
    array[7].assign(1000, 'y');
    delete[] static_cast<std::string*>(hidden(array));
  }
  CHECK(replaced::made > 1000 && replaced::made == replaced::released, "%d made, %d released",
        replaced::made, replaced::released);
}
