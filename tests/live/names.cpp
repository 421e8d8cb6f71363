// Reads names of functions, one a line, and prints for each its short name and whether it is listed
// by the words that the first argument names.
#include "names.hpp"

#include <iostream>
#include <string>

#include "settings.hpp"

extern "C" const char allod_live_wrappers[] = "";
extern "C" const char allod_live_wrappers_end[] = "";
allod::live::Settings& allod::live::settings() noexcept {
  static Settings none;
  return none;
}

int main(int, char** argv) {
  for (std::string line; std::getline(std::cin, line);) {
    const allod::live::ShortName name{line};
    std::cout << name.text() << "\t" << allod::live::is_listed(name.text(), argv[1]) << "\n";
  }
  return 0;
}
