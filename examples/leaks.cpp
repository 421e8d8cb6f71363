// Which blocks of a part of the program were not freed? The part has a heap of its own, which
// tells when it is destroyed. The debug library also tells who allocated them.
#include <allod/api/heap.hpp>
#include <allod/api/std_allocator.hpp>
#include <cstdio>
#include <vector>

int main() {
  allod_heap_options_t options = allod::Heap::options("parser");
  options.report_leaks = 1;
  allod::Heap heap{options};
  {
    std::vector<int, allod::StdAllocator<int>> numbers{heap};
    for (int i = 0; i < 1000; ++i) numbers.push_back(i);
  }
  // Everything of the vector is freed. Of these, one is not.
  void* const forgotten = heap.allocate(100);
  void* const freed = heap.allocate(200);
  heap.deallocate(freed);
  std::printf("at %p\n", forgotten);
  std::fflush(stdout);
}
