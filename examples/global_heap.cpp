// A composed heap behind operator new of a whole program: magazines for each thread, the sizes that
// this program likes, any other size as well.
#include <allod.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

struct Parts : allod::Parts {
  using Sizes = allod::FixedClasses<32, 64, 80, 128, 512>;
  using Storage = allod::AnySize<>;
  using Threads = allod::ThreadCaching<>;
};
using Heap = allod::Tailored<Parts>;
ALLOD_REPLACE_NEW(Heap);

int main() {
  std::vector<std::map<int, std::string>> names(4);
  {
    std::vector<std::jthread> threads;
    for (auto& own : names) {
      threads.emplace_back([&own] {
        for (int i = 0; i < 10'000; ++i)
          own[i] = "a name that is not short, number " + std::to_string(i);
      });
    }
  }
#ifndef ALLOD_USE_SYSTEM_MALLOC
  Heap& heap = AllodProcess::heap();
  std::printf("in use: %zu blocks\n", heap.figures().live_blocks);
  names.clear();
  std::printf("and after: %zu blocks\n", heap.figures().live_blocks);
#endif
}
