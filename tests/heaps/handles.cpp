// First-class heaps as C++ objects, and in the containers of the standard library.
#include <allod/api/heap.hpp>
#include <allod/api/memory_resource.hpp>
#include <allod/api/std_allocator.hpp>
#include <deque>
#include <list>
#include <map>
#include <memory_resource>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cases.h"

namespace {

using allod::Heap;
using allod::MemoryResource;
using allod::StdAllocator;

template <class T>
using Vector = std::vector<T, StdAllocator<T>>;
using String = std::basic_string<char, std::char_traits<char>, StdAllocator<char>>;

static_assert(!std::is_copy_constructible_v<Heap> && std::is_nothrow_move_assignable_v<Heap>);
static_assert(sizeof(Heap) == sizeof(void*));

CASE(a_handle_owns_its_heap) {
  Heap heap{"one"};
  CHECK(std::string{heap.name()} == "one", "%s", heap.name());
  void* const block = heap.allocate(100);
  CHECK(heap.contains(block) && heap.stats().live_blocks == 1, "block");
  Heap moved{std::move(heap)};
  CHECK(heap.handle() == nullptr && moved.contains(block), "moved");
  Heap other{"two", MIB};
  CHECK(other.allocate(2 * MIB) == nullptr, "limit");
  other.set_limit(0);
  void* const kept = other.allocate(2 * MIB);
  CHECK(is_aligned(other.allocate(100, 4096), 4096), "aligned");
  CHECK(is_zero(other.allocate_zeroed(10, 10), 100), "zeroed");
  other = std::move(moved);
  CHECK(other.contains(block) && !other.contains(kept), "assigned");
  int blocks = 0;
  CHECK(other.walk(
            [&](void* at, std::size_t bytes) { return ++blocks, at == block && bytes == 112; }),
        "walk");
  CHECK(blocks == 1, "%d blocks", blocks);
  void* const larger = other.reallocate(block, 1000);
  other.deallocate(other.allocate(5));
  CHECK(other.collect() > 0, "nothing collected");
  other.detach();
  allod_free(larger);
}

CASE(what_the_handle_cannot_get_is_an_exception) {
  Heap heap{"small", 10 * KIB};
  Vector<int> numbers{heap};
  bool thrown = false;
  try {
    for (;;) numbers.push_back(1);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown && numbers.size() > 500, "%zu numbers", numbers.size());
  thrown = false;
  try {
    static_cast<void>(StdAllocator<int>{}.allocate(hidden_size(SIZE_MAX / 2)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown, "an impossible size");
  MemoryResource resource{heap};
  thrown = false;
  try {
    static_cast<void>(resource.allocate(MIB, 64));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown, "beyond the limit");
}

struct alignas(256) Wide {
  unsigned char bytes[256];
};

CASE(containers_live_in_a_heap) {
  Heap heap;
  {
    Vector<long> vector{heap};
    std::list<Wide, StdAllocator<Wide>> list{heap};
    std::deque<String, StdAllocator<String>> deque{heap};
    using Pair = std::pair<const int, String>;
    std::map<int, String, std::less<>, StdAllocator<Pair>> map{heap};
    std::unordered_map<int, String, std::hash<int>, std::equal_to<>, StdAllocator<Pair>> hash{heap};
    for (int i = 0; i < 20000; ++i) {
      const String text(static_cast<std::size_t>(i % 100), 'x', heap);
      vector.push_back(i);
      if (i % 10 == 0) list.emplace_back();
      deque.push_back(text);
      map.emplace(i % 777, text);
      hash.emplace(i % 555, text);
      if (i % 3 == 0) deque.pop_front();
    }
    for (const Wide& wide : list) CHECK(is_aligned(&wide, 256), "alignment");
    CHECK(heap.contains(vector.data()) && heap.stats().live > 20000 * sizeof(long), "in the heap");
    CHECK(map.size() == 777 && hash.size() == 555, "sizes");
    CHECK(map.at(776).size() == 76, "%zu", map.at(776).size());
  }
  CHECK(heap.stats().live_blocks == 0, "%zu blocks", heap.stats().live_blocks);
  std::set<int, std::less<>, StdAllocator<int>> process;
  for (int i = 0; i < 1000; ++i) process.insert(i);
  std::vector<Wide, StdAllocator<Wide>> wide(100);
  CHECK(is_aligned(wide.data(), 256), "alignment");
}

CASE(a_container_knows_whose_its_memory_is) {
  Heap one;
  Heap two;
  CHECK(StdAllocator<int>{one} == StdAllocator<char>{one}, "same heap");
  CHECK(StdAllocator<int>{one} != StdAllocator<int>{two}, "two heaps");
  CHECK(StdAllocator<int>{one} != StdAllocator<int>{}, "heap and process");
  const Vector<int> source({1, 2, 3}, one);
  Vector<int> copy{source};
  CHECK(copy.get_allocator().handle() == one.handle(), "a copy is in the same heap");
  Vector<int> assigned{two};
  assigned = source;
  CHECK(assigned.get_allocator().handle() == two.handle(), "assignment by copy keeps the heap");
  CHECK(two.contains(assigned.data()), "assignment by copy");
  const int* const data = copy.data();
  assigned = std::move(copy);
  CHECK(assigned.data() == data && one.contains(data), "a move takes memory and heap");
  Vector<int> third({4}, two);
  swap(third, assigned);
  CHECK(third.data() == data && third.get_allocator() == source.get_allocator(), "swap");
  CHECK(assigned.at(0) == 4, "swap");
}

CASE(pmr_containers_live_in_a_heap) {
  Heap heap;
  Heap another;
  MemoryResource resource{heap};
  MemoryResource same{heap};
  MemoryResource other{another};
  MemoryResource process;
  CHECK(resource == same && resource != other && resource != process, "equality");
  CHECK(process == MemoryResource{}, "equality");
  CHECK(resource != *std::pmr::new_delete_resource(), "equality");
  {
    std::pmr::map<std::pmr::string, std::pmr::vector<int>> map{&resource};
    for (int i = 0; i < 5000; ++i) {
      map[std::pmr::string(static_cast<std::size_t>(i % 50 + 20), 'k')].push_back(i);
    }
    for (const auto& [key, numbers] : map) {
      CHECK(heap.contains(key.data()) && heap.contains(numbers.data()), "in the heap");
    }
    std::pmr::vector<int> in_another{{1, 2}, &other};
    std::pmr::vector<int> moved{&resource};
    moved = std::move(in_another);
    CHECK(heap.contains(moved.data()), "a move between heaps copies");
    std::pmr::vector<int> equal{&same};
    equal = std::move(moved);
    CHECK(heap.contains(equal.data()) && moved.empty(), "a move within a heap");
    void* const wide = resource.allocate(10, 4096);
    CHECK(is_aligned(wide, 4096), "alignment");
    resource.deallocate(wide, 10, 4096);
    std::pmr::string plain{"a string that is not short at all", &process};
    std::pmr::unsynchronized_pool_resource pool{&resource};
    std::pmr::list<int> list(1000, &pool);
  }
  CHECK(heap.stats().live == 0 && another.stats().live == 0, "%zu bytes", heap.stats().live);
}

CASE(threads_share_a_resource) {
  Heap heap{"shared"};
  MemoryResource resource{heap};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::pmr::unordered_map<int, std::pmr::string> map{&resource};
      for (int i = 0; i < 20000; ++i) {
        map[i % 500] = std::pmr::string(static_cast<std::size_t>(i % 300), 'v');
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(heap.stats().live_blocks == 0, "%zu blocks", heap.stats().live_blocks);
}

}  // namespace
