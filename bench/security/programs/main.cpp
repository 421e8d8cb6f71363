// Runs one defect: defects FAMILY NAME SIZE. --list prints all of them.
#include <dlfcn.h>
#include <unistd.h>

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

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(3);
}

void say_who_serves() {
  Dl_info found;
  const bool known = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0;
  say("\n@@from ");
  say(known ? found.dli_fname : "unknown");
  say("\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--list") == 0) {
    list();
    return 0;
  }
  if (count != 4) {
    say("usage: defects FAMILY NAME SIZE, or defects --list\n");
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
    say("there is no such defect; --list prints all\n");
    return 2;
  }
  say_who_serves();
  wanted->run(std::strtoul(arguments[3], nullptr, 10));
  security::verify();
  security::give_back_all();
  say("\n@@done\n");
  return 0;
}
