// One include replaces the global operators.
#include <allod/new.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

struct alignas(512) Wide {
  char bytes[512];
};

allod_stats_t stats() {
  allod_stats_t now{};
  allod_stats_get(&now, sizeof now);
  return now;
}

}  // namespace

int main() {
  const std::size_t before = stats().live;
  auto numbers = std::make_unique<std::vector<std::string>>();
  for (int i = 0; i < 10000; ++i) numbers->push_back(std::string(100, 'x'));
  auto wide = std::make_unique<Wide[]>(10);
  auto* const single = new (std::nothrow) Wide;
  if (stats().live < before + 10000 * 100 + 11 * sizeof(Wide)) return 1;
  if (reinterpret_cast<std::uintptr_t>(wide.get()) % 512 != 0) return 2;
  delete single;
  numbers.reset();
  wide.reset();
  return stats().live > before + 1000 ? 3 : 0;
}
