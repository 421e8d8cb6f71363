// A library that comes and goes: allocates when it comes, when it is called, and when it goes.
#include <cstdlib>
#include <string>
#include <vector>

namespace {

std::vector<std::string>* names = nullptr;

[[gnu::constructor]] void come() {
  names = new std::vector<std::string>(10, std::string(100, 'n'));
}
[[gnu::destructor]] void go() { delete names; }

}  // namespace

// Throws what it is given a copy of, after some allocations.
extern "C" [[gnu::visibility("default")]] void visit(int depth) {
  const std::string here(static_cast<std::size_t>(64 + depth), 'v');
  if (depth == 0) throw here;
  visit(depth - 1);
}
