// Leaves blocks behind in a heap that reports them.
#include <allod.hpp>

namespace {

struct Reporting : allod::Parts {
  using Sizes = allod::FixedClasses<32, 64, 256>;
  using Observer = allod::LeakReport;
};

void leak(allod::Tailored<Reporting>& heap, std::size_t size) {
  static_cast<void>(heap.allocate(size));
}

}  // namespace

int main(int argc, char**) {
  allod::Tailored<Reporting> heap{"leaky"};
  void* kept[3];
  for (void*& block : kept) block = heap.allocate<32>();
  if (argc == 1) {
    leak(heap, 200);
    leak(heap, 56);
    static_cast<void>(heap.allocate<8>());
  }
  for (void* const block : kept) heap.deallocate(block);
}
