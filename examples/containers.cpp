// Containers of the standard library whose memory comes from a heap of its own.
#include <allod/api/heap.hpp>
#include <allod/api/memory_resource.hpp>
#include <allod/api/std_allocator.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

struct Order {
  int number;
  double price;
};

void tell(const char* when, const allod::Heap& heap) {
  const allod_heap_stats_t stats = heap.stats();
  std::printf("%s: %zu blocks, %zu bytes\n", when, stats.live_blocks, stats.live);
}

}  // namespace

int main() {
  allod::Heap heap{"orders"};

  // As a template argument: the heap stands where the container wants its allocator.
  std::vector<Order, allod::StdAllocator<Order>> orders{heap};
  for (int number = 1; number <= 100; ++number) orders.push_back({number, 9.99 * number});
  tell("a vector", heap);

  // As a memory resource: what is in the container uses it, too.
  allod::MemoryResource resource{heap};
  std::pmr::map<int, std::pmr::string> names{&resource};
  for (const Order& order : orders) {
    names.emplace(order.number, "a name that is too long to be kept in the string itself");
  }
  tell("and a map", heap);

  // A copy with the default resource lives on the heap of the process.
  const std::map<int, std::pmr::string> copy{names.begin(), names.end()};
  names.clear();
  tell("the map is cleared", heap);
  std::printf("the copy still has %zu names\n", copy.size());
}
