// Reads a block after it was freed, or behind its end, or leaves it behind: for tools that watch
// memory. Arguments: what to do, and where.
#include <allod.hpp>
#include <cstdio>
#include <cstring>

namespace {

struct Plain : allod::Parts {
  using Sizes = allod::FixedClasses<32, 64, 256>;
};
struct Shared : allod::Parts {
  using Threads = allod::ThreadCaching<>;
  using Storage = allod::AnySize<>;
};
allod::Tailored<Plain> plain{"plain"};
allod::Tailored<Shared> shared{"shared"};

volatile int g_read;

template <class Heap>
[[gnu::noinline]] int act(Heap& heap, const char* what, std::size_t size) {
  // A magazine that is in use already makes no difference.
  for (int i = 0; i < 10; ++i) heap.deallocate(heap.allocate(size));
  auto* const block = static_cast<volatile unsigned char*>(heap.allocate(size));
  auto* const other = static_cast<volatile unsigned char*>(heap.allocate(size));
  if (block == nullptr || other == nullptr) return 3;
  for (std::size_t i = 0; i < size; ++i) {
    block[i] = 1;
    other[i] = 1;
  }
  int read = block[size - 1];
  if (std::strcmp(what, "overflow") == 0) read += block[size];
  if (std::strcmp(what, "leak") != 0) heap.deallocate(const_cast<unsigned char*>(block));
  if (std::strcmp(what, "use after free") == 0) read += block[size / 2];
  heap.deallocate(const_cast<unsigned char*>(other));
  // Valgrind does not see a load whose value nobody uses.
  g_read = read;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int status = std::strcmp(argv[2], "slab") == 0    ? act(plain, argv[1], 40)
                     : std::strcmp(argv[2], "cache") == 0 ? act(shared, argv[1], 40)
                     : std::strcmp(argv[2], "any") == 0   ? act(shared, argv[1], 3000)
                     : std::strcmp(argv[2], "run") == 0   ? act(shared, argv[1], 50'001)
                                                          : act(shared, argv[1], 2'000'001);
  std::puts("done");
  return status;
}
