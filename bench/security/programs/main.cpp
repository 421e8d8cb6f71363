// Runs one defect: defects FAMILY NAME SIZE. --list prints all of them.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "defect.hpp"
#include "program.hpp"

namespace {

using security::Defect;

template <class Visit>
void each_defect(Visit visit) {
  for (const auto& table :
       {security::double_frees(), security::invalid_frees(), security::overruns(),
        security::after_frees(), security::impossible_sizes(), security::mismatches(),
        security::executions()}) {
    for (const Defect& defect : table) visit(defect);
  }
}

void list() {
  each_defect([](const Defect& defect) {
    std::printf("%s\t%s\t%s\t%s\t%s\n", defect.family, defect.name,
                defect.kind == security::Kind::call ? "call" : "access",
                defect.sized ? "sized" : "one", defect.about);
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--list") == 0) {
    list();
    return 0;
  }
  if (count != 4) {
    security::say("usage: defects FAMILY NAME SIZE, or defects --list\n");
    return 2;
  }
  const Defect* wanted = nullptr;
  each_defect([&](const Defect& defect) {
    if (std::strcmp(defect.family, arguments[1]) == 0 &&
        std::strcmp(defect.name, arguments[2]) == 0) {
      wanted = &defect;
    }
  });
  if (wanted == nullptr) {
    security::say("there is no such defect; --list prints all\n");
    return 2;
  }
  security::say_who_serves();
  wanted->run(std::strtoul(arguments[3], nullptr, 10));
  security::verify();
  security::give_back_all();
  security::say("\n@@done\n");
  return 0;
}
