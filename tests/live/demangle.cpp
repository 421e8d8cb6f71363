// Demangles names from standard input, a line each, as the server and the commands do.
#include <cxxabi.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "text/demangle.hpp"

int main() {
  for (std::string name; std::getline(std::cin, name);) {
    char room[2000];
    allod::Bounded to{room, sizeof room};
    if (!allod::demangle_rust(name, to)) {
      to.cut(0);
      if (!allod::demangle_d(name, to)) {
        to.cut(0);
        int status = 0;
        char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
        const std::string text = plain == nullptr ? name : plain;
        if (!allod::decode_old_rust(text, to)) to.add(text);
        std::free(plain);
      }
    }
    std::cout << to.text() << "\n";
  }
}
