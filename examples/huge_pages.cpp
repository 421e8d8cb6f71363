// A heap on huge pages. Where the system has none to spare, it gets ordinary memory and a wish for
// transparent huge pages, and says so.
#include <allod.hpp>
#include <cstdio>

struct TableParts : allod::Parts {
  using Sizes = allod::FixedClasses<64>;
  using Pages = allod::HugePages<>;
};

int main() {
  allod::Tailored<TableParts> heap{"table"};
  unsigned long sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto* const row = static_cast<unsigned char*>(heap.allocate<64>());
    if (row == nullptr) return 1;
    row[0] = static_cast<unsigned char>(i);
    sum += row[0];
  }
  const auto figures = heap.figures();
  std::printf("%zu rows on %llu pages of 2 MiB, %zu of them not from the pool of huge pages\n",
              figures.live_blocks, static_cast<unsigned long long>(figures.chunks),
              heap.pages().missed());
  return sum == 0;
}
