// What C++ programs allocate through: containers, strings, streams, threads, exceptions.
#include <algorithm>
#include <any>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cases.h"

namespace {

// Inserts and erases by the same random sequence in a container and in a plain table.
template <class Map>
void check_map() {
  constexpr std::size_t kKeys = 5000;
  Map map;
  std::vector<std::string> table(kKeys);
  std::mt19937 random(1);
  for (int step = 0; step < 100000; ++step) {
    const std::size_t key = random() % kKeys;
    if (random() % 3 == 0) {
      map.erase(key);
      table[key].clear();
    } else {
      std::string value(random() % 200 + 1, static_cast<char>('a' + random() % 26));
      map[key] = value;
      table[key] = std::move(value);
    }
  }
  for (std::size_t key = 0; key < kKeys; ++key) {
    const auto found = map.find(key);
    CHECK((found == map.end()) == table[key].empty(), "key %zu", key);
    CHECK(found == map.end() || found->second == table[key], "value of key %zu", key);
  }
}

template <class Sequence>
void check_sequence() {
  Sequence sequence;
  unsigned long expected = 0;
  for (unsigned long i = 0; i < 200000; ++i) {
    sequence.push_back(i);
    expected += i;
    if (i % 5 == 0) {
      expected -= sequence.back();
      sequence.pop_back();
    }
  }
  CHECK(std::accumulate(sequence.begin(), sequence.end(), 0UL) == expected, "the sum differs");
  Sequence copy = sequence;
  sequence.clear();
  CHECK(std::accumulate(copy.begin(), copy.end(), 0UL) == expected, "the copy differs");
}

}  // namespace

CASE(maps) {
  check_map<std::map<std::size_t, std::string>>();
  check_map<std::unordered_map<std::size_t, std::string>>();
  check_map<std::pmr::map<std::size_t, std::string>>();
}

CASE(sequences) {
  check_sequence<std::vector<unsigned long>>();
  check_sequence<std::deque<unsigned long>>();
  check_sequence<std::list<unsigned long>>();
  check_sequence<std::pmr::vector<unsigned long>>();
}

CASE(strings_grow_from_nothing_to_megabytes) {
  std::string text;
  for (int i = 0; i < 3000000; ++i) {
    text.push_back(static_cast<char>('a' + i % 26));
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    CHECK(text[i] == static_cast<char>('a' + i % 26), "character %zu", i);
  }
  std::string sum;
  for (int i = 0; i < 2000; ++i) {
    sum = sum + std::to_string(i) + ",";
  }
  CHECK(sum.size() == 10 * 2 + 90 * 3 + 900 * 4 + 1000 * 5, "%zu characters", sum.size());
}

CASE(multisets_and_shared_pointers) {
  std::multiset<std::shared_ptr<std::string>> owners;
  std::vector<std::weak_ptr<std::string>> watchers;
  for (int i = 0; i < 20000; ++i) {
    auto shared = std::make_shared<std::string>(std::to_string(i) + std::string(20, '.'));
    owners.insert(shared);
    owners.insert(shared);
    watchers.push_back(shared);
  }
  owners.clear();
  CHECK(std::all_of(watchers.begin(), watchers.end(),
                    [](const auto& watcher) { return watcher.expired(); }),
        "a shared pointer outlives its owners");
}

CASE(memory_resources) {
  std::pmr::synchronized_pool_resource pool(std::pmr::new_delete_resource());
  std::pmr::monotonic_buffer_resource arena(std::pmr::new_delete_resource());
  std::pmr::vector<std::pmr::string> texts(&pool);
  for (int i = 0; i < 10000; ++i) {
    texts.emplace_back(std::string(static_cast<std::size_t>(i % 300), 'x'));
    void* block = arena.allocate(static_cast<std::size_t>(i % 5000 + 1), 64);
    CHECK(is_aligned(block, 64), "a block of the arena at %p", block);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(texts[i].size() == i % 300, "text %zu", i);
  }
}

CASE(streams_and_regular_expressions) {
  std::ostringstream out;
  for (int i = 0; i < 5000; ++i) {
    out << "item" << i << '=' << i * 3 << ';';
  }
  const std::string text = out.str();
  const std::regex pattern("item([0-9]+)=([0-9]+);");
  int matches = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    CHECK(std::stoi((*it)[1]) * 3 == std::stoi((*it)[2]), "match %d", matches);
    ++matches;
  }
  CHECK(matches == 5000, "%d matches", matches);
  std::ifstream self("/proc/self/status");
  std::string line;
  int lines = 0;
  while (std::getline(self, line)) {
    ++lines;
  }
  CHECK(lines > 10, "%d lines", lines);
}

CASE(type_erasure) {
  std::vector<std::function<int(int)>> functions;
  std::vector<std::any> values;
  for (int i = 0; i < 10000; ++i) {
    std::vector<int> captured(static_cast<std::size_t>(i % 50 + 1), i);
    functions.emplace_back([captured](int x) { return captured.back() + x; });
    values.emplace_back(std::string(static_cast<std::size_t>(i % 100), 'v'));
  }
  for (int i = 0; i < 10000; ++i) {
    const auto index = static_cast<std::size_t>(i);
    CHECK(functions[index](1) == i + 1, "function %d", i);
    CHECK(std::any_cast<std::string&>(values[index]).size() == index % 100, "value %d", i);
  }
}

CASE(exceptions_through_many_frames) {
  const std::function<int(int)> thrower = [&thrower](int depth) -> int {
    const std::string local(100, 'l');
    if (depth == 0) {
      throw std::runtime_error(std::string(1000, 'e'));
    }
    return thrower(depth - 1) + static_cast<int>(local.size());
  };
  for (int i = 0; i < 2000; ++i) {
    bool caught = false;
    try {
      thrower(i % 30);
    } catch (const std::runtime_error& error) {
      caught = std::string(error.what()).size() == 1000;
    }
    CHECK(caught, "exception %d", i);
  }
}

CASE(threads_and_futures) {
  std::vector<std::future<std::string>> futures;
  for (int i = 0; i < 200; ++i) {
    futures.push_back(std::async(std::launch::async, [i] {
      std::string text;
      for (int j = 0; j < 200; ++j) {
        text += std::to_string(i * j) + ' ';
      }
      return text;
    }));
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    const std::string text = futures[i].get();
    std::istringstream words(text);
    for (std::size_t j = 0; j < 200; ++j) {
      std::size_t value = 0;
      words >> value;
      CHECK(value == i * j, "word %zu of thread %zu", j, i);
    }
  }
}

// Sorting that asks for a temporary buffer with nothrow new.
CASE(stable_sort_with_a_buffer) {
  std::mt19937 random(2);
  std::vector<std::pair<unsigned, std::size_t>> items(300000);
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i] = {random() % 1000, i};
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < items.size(); ++i) {
    CHECK(items[i - 1] < items[i], "elements %zu and %zu", i - 1, i);
  }
}
