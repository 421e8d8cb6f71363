// Makes a known number of calls of operator new and delete: operators ROUNDS.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

struct alignas(128) Wide {
  char bytes[128];
};

int handler_calls = 0;
void give_up() {
  if (++handler_calls % 3 == 0) throw std::bad_alloc{};
}

void need(bool condition) {
  if (!condition) std::abort();
}

volatile std::size_t too_much = PTRDIFF_MAX;

// Without it, a compiler may leave out a new whose block is only deleted.
template <class T>
T* made(T* block) {
  __asm__ volatile("" : "+r"(block));
  return block;
}

// Of each round: 6 that succeed, 2 of them for an alignment, and 2 that fail.
void round_of_calls() {
  delete made(new int{1});
  delete[] made(new long[100]);
  delete made(new Wide);
  delete made(new (std::nothrow) int{2});
  std::vector<int> numbers(1000);
  numbers.clear();
  numbers.shrink_to_fit();
  std::vector<Wide> wide(3);
  need(::operator new(too_much, std::nothrow) == nullptr);
  bool caught = false;
  try {
    ::operator delete(::operator new(too_much));
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  need(caught);
}

}  // namespace

int main(int argc, char** argv) {
  need(argc == 2);
  // The first exception has the runtime allocate for good.
  try {
    throw std::bad_alloc{};
  } catch (const std::bad_alloc&) {
  }
  for (long i = std::atol(argv[1]); i > 0; --i) round_of_calls();
  std::set_new_handler(give_up);
  try {
    ::operator delete(::operator new(too_much));
    return 1;
  } catch (const std::bad_alloc&) {
  }
  return handler_calls == 3 ? 0 : 2;
}
