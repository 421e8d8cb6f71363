// order list
// order run SCENARIO [--random EXECUTIONS] [--seed SEED] [--most EXECUTIONS]
//                    [--weaken SITE[,SITE...]:ORDER]...
// Prints what was found as lines of a word and its value. Ends with 1 if an execution failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "explore.hpp"

namespace {

using namespace order;

constexpr const char* kOrders[] = {"relaxed", "consume", "acquire", "release",
                                   "acq_rel", "seq_cst", "none"};

void print(const Result& result) {
  std::printf("complete %d\n", result.is_complete ? 1 : 0);
  std::printf("executions %llu\n", static_cast<unsigned long long>(result.executions));
  std::printf("redundant %llu\n", static_cast<unsigned long long>(result.redundant));
  std::printf("inconsistent %llu\n", static_cast<unsigned long long>(result.inconsistent));
  for (const std::string& outcome : result.outcomes) std::printf("outcome %s\n", outcome.c_str());
  for (const auto& [site, use] : result.sites) {
    std::printf("site %#zx %s %s\n", static_cast<std::size_t>(site), use.operation,
                kOrders[static_cast<int>(use.order)]);
  }
  if (!result.failure.empty()) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(result.seed));
    std::printf("failure %s\n", result.failure.c_str());
  }
}

bool weaken(Options& options, const char* text) {
  char* at = nullptr;
  std::vector<Site> sites;
  do {
    sites.push_back(std::strtoull(at == nullptr ? text : at + 1, &at, 16));
  } while (*at == ',');
  if (*at != ':') return false;
  for (int order = 0; order < 7; ++order) {
    if (std::strcmp(at + 1, kOrders[order]) != 0) continue;
    for (const Site site : sites) options.weakened[site] = static_cast<Order>(order);
    return true;
  }
  return false;
}

bool parse(Options& options, int argc, char** argv) {
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--random") {
      options.is_random = true;
      options.most_executions = std::strtoull(value, nullptr, 10);
    } else if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--most") {
      options.most_executions = std::strtoull(value, nullptr, 10);
    } else if (name != "--weaken" || !weaken(options, value)) {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "list") == 0) {
    for (const Scenario& scenario : scenarios()) {
      std::printf("%s: %s\n", scenario.name, scenario.about);
    }
    return 0;
  }
  Options options;
  if (argc < 3 || std::strcmp(argv[1], "run") != 0 || !parse(options, argc, argv)) return 2;
  for (const Scenario& scenario : scenarios()) {
    if (std::strcmp(scenario.name, argv[2]) != 0) continue;
    const Result result = explore(scenario, options);
    print(result);
    return result.failure.empty() ? 0 : 1;
  }
  std::fprintf(stderr, "no such scenario: %s\n", argv[2]);
  return 2;
}
