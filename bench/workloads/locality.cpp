// A list, a map and a vector of strings, built by the C++ library on a heap that is full of holes,
// and then walked. Only the walks are timed: what an allocator saves by handing out whatever is at
// hand, the program pays for in cache misses (Grunwald, Zorn and Henderson, 1993).
#include <list>
#include <map>
#include <string>
#include <vector>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kMost = 256;
constexpr std::uint64_t kHoles = 8;  // blocks of the churn for each element

std::uint64_t g_elements = 150'000;
std::uint64_t g_walks = 60;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"elements", &g_elements, 10, 100'000'000, "elements of each container"},
    {"walks", &g_walks, 1, 1'000'000, "walks over each container"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes, keys and order"},
};
bench::Workload g_workload("locality", "walks over C++ containers", kParameters);

// Blocks are replaced at random for a while; then all are freed but one in eight, by chance.
class Churn {
 public:
  explicit Churn(bench::Random& random)
      : blocks_(bench::map_resident_array<void*>(kHoles * g_elements)) {
    const std::uint64_t count = kHoles * g_elements;
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks_[i] = make(random);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      void*& block = blocks_[random.below(count)];
      operator delete(block);
      block = make(random);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (random.below(kHoles) != 0) {
        operator delete(blocks_[i]);
        blocks_[i] = nullptr;
      }
    }
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  ~Churn() {
    for (std::uint64_t i = 0; i < kHoles * g_elements; ++i) {
      operator delete(blocks_[i]);
    }
  }

 private:
  // Written to, or the size of what is resident would mean nothing.
  static void* make(bench::Random& random) {
    const std::uint64_t size = 1 + random.below(kMost);
    auto* const block = static_cast<unsigned char*>(operator new(size));
    bench::write_byte(block, size);
    return block;
  }

  void** blocks_;
};

struct Containers {
  explicit Containers(bench::Random& random) {
    for (std::uint64_t i = 0; i < g_elements; ++i) {
      list.push_back(i);
    }
    for (std::uint64_t i = 0; i < g_elements; ++i) {
      map.emplace(random.next(), i);
    }
    strings.reserve(g_elements);
    for (std::uint64_t i = 0; i < g_elements; ++i) {
      strings.emplace_back(16 + random.below(64), static_cast<char>('a' + i % 26));
    }
  }

  std::list<std::uint64_t> list;
  std::map<std::uint64_t, std::uint64_t> map;
  std::vector<std::string> strings;
};

std::uint64_t walk_list(const Containers& containers) {
  std::uint64_t sum = 0;
  for (const std::uint64_t element : containers.list) {
    sum += element;
  }
  return sum;
}

std::uint64_t walk_map(const Containers& containers) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : containers.map) {
    sum += key ^ value;
  }
  return sum;
}

std::uint64_t walk_strings(const Containers& containers) {
  std::uint64_t sum = 0;
  for (const std::string& string : containers.strings) {
    sum += static_cast<unsigned char>(string.front()) * string.size();
  }
  return sum;
}

struct Walk {
  const char* name;
  std::uint64_t (*walk)(const Containers& containers);
};
constexpr Walk kWalks[] = {
    {"list", walk_list}, {"map", walk_map}, {"vector of strings", walk_strings}};

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  bench::Random random(g_seed);
  const Churn churn(random);
  const Containers containers(random);
  std::uint64_t sum = 0;
  for (const auto& [name, walk] : kWalks) {
    sum = bench::mix(sum, walk(containers));
    g_workload.start();
    const std::uint64_t before = bench::now();
    for (std::uint64_t i = 0; i < g_walks; ++i) {
      bench::escape(const_cast<Containers*>(&containers));
      sum += walk(containers);
    }
    const std::uint64_t spent = bench::now() - before;
    g_workload.stop();
    g_workload.point(name, static_cast<double>(spent) / static_cast<double>(g_walks * g_elements));
  }
  g_workload.report(sizeof kWalks / sizeof kWalks[0] * g_walks * g_elements, sum);
}
