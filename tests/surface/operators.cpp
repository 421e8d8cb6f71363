// Every replaceable operator new and delete.

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cases.h"
#include "operator_forms.hpp"

namespace {

using namespace operator_forms;

const size_t kImpossible[] = {
    std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - 4095,
    static_cast<size_t>(PTRDIFF_MAX) + 1, static_cast<size_t>(PTRDIFF_MAX),
    std::numeric_limits<size_t>::max() / 2 + 1};

enum class Outcome { kBlock, kNull, kBadAlloc, kOther };

struct Refusal : std::bad_alloc {};
struct Unrelated {};

Outcome outcome_of(const Allocation& allocation, size_t size) {
  try {
    void* block = allocate(allocation, size, 64);
    if (block == nullptr) {
      return Outcome::kNull;
    }
    std::free(block);
    return Outcome::kBlock;
  } catch (const std::bad_alloc&) {
    return Outcome::kBadAlloc;
  } catch (...) {
    return Outcome::kOther;
  }
}

int calls_of_handler = 0;

}  // namespace

CASE(every_new_goes_with_every_delete_of_its_kind) {
  static const size_t sizes[] = {0,    1,    7,    8,     16,    24,        100,     500,
                                 1000, 1024, 4096, 10000, 32768, 100 * KIB, 1000000, 5 * MIB};
  for_each_pair([](const Allocation& allocation, const Deallocation& deallocation) {
    for (const size_t size : sizes) {
      for (size_t alignment = 8; alignment <= MIB; alignment *= 4) {
        void* first = allocate(allocation, size, alignment);
        void* second = allocate(allocation, size, alignment);
        CHECK(first != nullptr && second != nullptr && first != second, "%s of %zu",
              allocation.name, size);
        const size_t owed = allocation.aligned ? alignment : natural_alignment(size);
        CHECK(is_aligned(first, owed) && is_aligned(second, owed), "%s of %zu at %zu: %p, %p",
              allocation.name, size, alignment, first, second);
        fill(first, size, 1);
        fill(second, size, 2);
        CHECK(holds(first, size, 1), "%s: blocks of %zu overlap", allocation.name, size);
        deallocation.release(first, size, align_val_t{alignment});
        CHECK(holds(second, size, 2), "%s wrote to another block", deallocation.name);
        deallocation.release(second, size, align_val_t{alignment});
        if (!allocation.aligned) {
          break;
        }
      }
    }
  });
}

CASE(every_delete_gives_memory_back) {
  for (const Deallocation& deallocation : kDeallocations) {
    const size_t before = resident_bytes();
    for (int round = 0; round < 3000; ++round) {
      const size_t size = round % 2 == 0 ? 100 * KIB : 30000;
      void* block =
          deallocation.aligned ? ::operator new(size, align_val_t{128}) : ::operator new(size);
      std::memset(hidden(block), 1, size);
      deallocation.release(block, size, align_val_t{128});
    }
    CHECK(resident_bytes() < before + 64 * MIB, "%s leaks", deallocation.name);
  }
}

CASE(deleting_null_does_nothing) {
  for (const Deallocation& deallocation : kDeallocations) {
    deallocation.release(nullptr, 0, align_val_t{64});
    deallocation.release(nullptr, 100, align_val_t{4096});
  }
  ::operator delete(::operator new(100));
}

CASE(new_of_no_bytes_is_unique) {
  for (const Allocation& allocation : kAllocations) {
    void* blocks[100];
    for (void*& block : blocks) {
      block = allocate(allocation, 0, 32);
      CHECK(block != nullptr, "%s of no bytes", allocation.name);
      for (void** other = blocks; other < &block; ++other) {
        CHECK(*other != block, "%s of no bytes is not unique", allocation.name);
      }
    }
    for (void* block : blocks) {
      std::free(block);
    }
  }
}

CASE(without_a_handler_new_throws_or_is_null) {
  std::set_new_handler(nullptr);
  for (const Allocation& allocation : kAllocations) {
    for (const size_t size : kImpossible) {
      const Outcome expected = allocation.throwing ? Outcome::kBadAlloc : Outcome::kNull;
      CHECK(outcome_of(allocation, size) == expected, "%s of %zu", allocation.name, size);
    }
    CHECK(outcome_of(allocation, 100) == Outcome::kBlock, "%s after a failure", allocation.name);
  }
}

CASE(handler_is_called_until_it_gives_up) {
  for (const Allocation& allocation : kAllocations) {
    calls_of_handler = 0;
    std::set_new_handler([] {
      if (++calls_of_handler == 5) {
        std::set_new_handler(nullptr);
      }
    });
    const Outcome expected = allocation.throwing ? Outcome::kBadAlloc : Outcome::kNull;
    CHECK(outcome_of(allocation, kImpossible[0]) == expected, "%s", allocation.name);
    CHECK(calls_of_handler == 5, "%s called the handler %d times", allocation.name,
          calls_of_handler);
  }
}

CASE(handler_that_throws_bad_alloc) {
  for (const Allocation& allocation : kAllocations) {
    for (const size_t size : kImpossible) {
      calls_of_handler = 0;
      std::set_new_handler([] {
        ++calls_of_handler;
        throw Refusal();
      });
      bool caught = false;
      void* block = nullptr;
      try {
        block = allocate(allocation, size, 64);
      } catch (const Refusal&) {
        caught = true;
      }
      CHECK(caught == allocation.throwing, "%s of %zu", allocation.name, size);
      CHECK(block == nullptr, "%s of %zu is %p", allocation.name, size, block);
      CHECK(calls_of_handler == 1, "%s called the handler %d times", allocation.name,
            calls_of_handler);
    }
  }
}

// Only the throwing forms: what a nothrow form does with a foreign exception is to terminate.
CASE(handler_that_throws_something_else) {
  std::set_new_handler([] { throw Unrelated(); });
  for (const Allocation& allocation : kAllocations) {
    if (allocation.throwing) {
      CHECK(outcome_of(allocation, kImpossible[0]) == Outcome::kOther, "%s", allocation.name);
    }
  }
}

CASE(handler_can_replace_itself) {
  for (const Allocation& allocation : kAllocations) {
    calls_of_handler = 0;
    std::set_new_handler([] {
      ++calls_of_handler;
      std::set_new_handler([] {
        calls_of_handler += 10;
        std::set_new_handler(nullptr);
      });
    });
    const Outcome expected = allocation.throwing ? Outcome::kBadAlloc : Outcome::kNull;
    CHECK(outcome_of(allocation, kImpossible[0]) == expected, "%s", allocation.name);
    CHECK(calls_of_handler == 11, "%s called the handlers for %d", allocation.name,
          calls_of_handler);
  }
}

namespace {

constexpr size_t kLump = 256 * static_cast<size_t>(MIB);
std::vector<void*>* lumps = nullptr;

void free_a_lump() {
  ++calls_of_handler;
  CHECK(!lumps->empty(), "nothing left to free, and new still fails");
  std::free(lumps->back());
  lumps->pop_back();
}

}  // namespace

CASE(handler_that_frees_memory_lets_new_succeed) {
  lumps = new std::vector<void*>;
  lumps->reserve(1000);
  limit_address_space(5 * kLump);
  while (void* lump = hidden(std::malloc(kLump))) {
    lumps->push_back(lump);
    CHECK(lumps->size() < 100, "the limit on address space has no effect");
  }
  CHECK(!lumps->empty(), "not one lump fits in the address space of five");
  std::set_new_handler(free_a_lump);
  for (const Allocation& allocation : kAllocations) {
    calls_of_handler = 0;
    void* block = allocate(allocation, kLump, 64);
    CHECK(block != nullptr, "%s after the handler freed memory", allocation.name);
    CHECK(calls_of_handler >= 1, "%s did not need the handler", allocation.name);
    static_cast<char*>(block)[kLump - 1] = 1;
    lumps->push_back(block);
  }
  for (void* lump : *lumps) {
    std::free(lump);
  }
}

CASE(failures_leave_nothing_behind) {
  std::set_new_handler(nullptr);
  const size_t before = resident_bytes();
  for (int round = 0; round < 20000; ++round) {
    for (const Allocation& allocation : kAllocations) {
      if (!allocation.throwing || round % 20 == 0) {
        (void)outcome_of(allocation, kImpossible[round % 5]);
      }
    }
  }
  CHECK(resident_bytes() < before + 8 * MIB, "failing allocations leak");
}

CASE(array_length_that_overflows_throws) {
  bool caught = false;
  try {
    const size_t length = hidden_size(PTRDIFF_MAX / 4);
    auto* array = new std::string[length];
    delete[] static_cast<std::string*>(hidden(array));
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  CHECK(caught, "new std::string[PTRDIFF_MAX / 4] did not throw");
}

namespace {

template <size_t kAlignment>
struct alignas(kAlignment) OverAligned {
  explicit OverAligned(int value) : value(value) {}
  ~OverAligned() {
    CHECK(is_aligned(this, kAlignment), "destroyed at %p", static_cast<void*>(this));
  }
  int value;
};

template <size_t kAlignment>
void check_over_aligned() {
  std::vector<std::unique_ptr<OverAligned<kAlignment>>> objects;
  std::vector<OverAligned<kAlignment>> array;
  for (int i = 0; i < 20; ++i) {
    objects.push_back(std::make_unique<OverAligned<kAlignment>>(i));
    array.emplace_back(i);
    CHECK(is_aligned(objects.back().get(), kAlignment), "new at %p",
          static_cast<void*>(objects.back().get()));
    CHECK(is_aligned(array.data(), kAlignment), "a vector at %p", static_cast<void*>(array.data()));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(objects[static_cast<size_t>(i)]->value == i, "object %d", i);
    CHECK(array[static_cast<size_t>(i)].value == i, "element %d", i);
  }
}

}  // namespace

CASE(over_aligned_types) {
  check_over_aligned<32>();
  check_over_aligned<64>();
  check_over_aligned<128>();
  check_over_aligned<256>();
  check_over_aligned<4096>();
  check_over_aligned<65536>();
}
