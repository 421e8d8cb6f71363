// One thread gets a heap of its own for a while: its odd sizes cost the others no memory, and all
// that it took is given back when the scope ends.
#include <allod.hpp>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

struct ProcessParts : allod::Parts {
  using Storage = allod::AnySize<>;
  using Threads = allod::ThreadCaching<>;
};
struct OddParts : allod::Parts {
  using Sizes = allod::FixedClasses<48, 3008>;
};
using ProcessHeap = allod::Tailored<ProcessParts>;
using OddHeap = allod::Tailored<OddParts>;
ALLOD_REPLACE_NEW(ProcessHeap);

int main() {
  std::jthread{[] {
    allod::ThreadScope<OddHeap> scope{"odd"};
    std::vector<std::unique_ptr<char[]>> records(1000);  // too large for a class: of the process
    for (auto& record : records) record.reset(new char[3000]);
    const auto figures = scope.heap().figures();
    std::printf("of the thread: %zu blocks in %zu KiB\n", figures.live_blocks,
                figures.mapped / 1024);
    records.resize(500);
    std::printf("half of them: %zu blocks\n", scope.heap().figures().live_blocks);
  }};
  std::printf("the thread has ended, and so has its heap\n");
}
