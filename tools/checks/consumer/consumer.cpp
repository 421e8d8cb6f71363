// A user's program. Prints the file that operator new comes from, as the loader sees it.
#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

int main() {
  void* (*function)(std::size_t) = ::operator new;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0) {
    return 1;
  }
  std::puts(info.dli_fname);

  std::vector<std::unique_ptr<std::string>> names;
  for (int i = 0; i < 1000; ++i) {
    names.push_back(std::make_unique<std::string>(static_cast<std::size_t>(i), 'x'));
  }
  return names.back()->size() == 999 ? 0 : 1;
}
