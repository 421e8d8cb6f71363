// A defect that a program can have, and the tables of them.
#pragma once

#include <cstddef>
#include <span>

namespace security {

enum class Kind {
  call,    // of the allocator, with something that it should refuse
  access,  // of the program to memory that is not its own
};

// `run` has one defect, which lies between before() and after() of program.hpp, and is given the
// size of the blocks that it is about; those that are not `sized` have only one.
struct Defect {
  const char* family;
  const char* name;
  const char* about;
  Kind kind;
  bool sized;
  void (*run)(std::size_t size);
};

std::span<const Defect> double_frees();
std::span<const Defect> invalid_frees();
std::span<const Defect> overruns();
std::span<const Defect> after_frees();
std::span<const Defect> impossible_sizes();
std::span<const Defect> mismatches();
std::span<const Defect> executions();

}  // namespace security
