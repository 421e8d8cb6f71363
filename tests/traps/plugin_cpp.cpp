// The C++ counterpart of plugin.c, which brings the C++ runtime into a C program.
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.h"
#include "plugin.h"

namespace {

struct Registry {
  std::map<int, std::string> entries;
  Registry() {
    for (int i = 0; i < 1000; ++i) {
      entries[i] = std::string(static_cast<std::size_t>(i), 'r');
    }
  }
  ~Registry() {
    for (const auto& [key, value] : entries) {
      CHECK(value.size() == static_cast<std::size_t>(key), "entry %d", key);
    }
    entries.clear();
    const std::vector<std::string> late(100, std::string(1000, 'l'));
    CHECK(late[99].size() == 1000, "a vector in a destructor");
  }
};

Registry registry;
thread_local std::vector<std::string> storage;

}  // namespace

void* plugin_allocate(std::size_t size) {
  try {
    throw std::runtime_error(std::string(size % 1000, 'e'));
  } catch (const std::exception&) {
  }
  void* block = ::operator new(size);
  fill(block, size, 42);
  return block;
}

void plugin_free(void* block, std::size_t size) {
  CHECK(holds(block, size, 42), "a block that crossed a library's border was overwritten");
  ::operator delete(block, size);
}

void plugin_use_storage(unsigned char value) {
  storage.clear();
  for (int i = 0; i < 20; ++i) {
    storage.emplace_back(1000, static_cast<char>(value));
  }
  CHECK(storage.back()[999] == static_cast<char>(value),
        "thread-local storage is another thread's");
}
