// Runs a few threads in all ways that the memory model allows, or in many at random.
//
// The threads are stackful fibers of one thread of the system. The compiler instruments the code
// under test as for ThreadSanitizer, and abi.cpp takes the place of its runtime: each atomic access
// and each fence, of std::atomic or of a builtin, is a step. So the code under test is the code of
// the library, unchanged. Plain accesses are no steps. They are checked for races.
//
// The exhaustive search visits each execution graph (which load returns which store, and in which
// order stores are) about once. Stores and fences are executed as soon as they come: a load that
// comes later may still return what was there before. Only the order of loads is a choice. A load
// that was executed in all ways may from then on only return stores that are new: sleep sets, after
// P. Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems", 1996. What is
// written by one thread alone is no choice for it; as others turn out to write it, the search
// begins anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model.hpp"

namespace order {

// What is run: anew for each execution, at the same addresses.
struct Scenario {
  const char* name;
  const char* about;
  unsigned threads;
  // The objects under test. Made and ended outside of any execution.
  std::function<void()> begin;
  std::function<void()> end;
  std::function<void(unsigned thread)> run;  // threads 1 to `threads`, by fibers
  std::function<void()> check;               // after all of them, and knowing all of it
  // Executions that do not end in a search of all are chosen at random, this many.
  std::uint32_t at_random = 0;
};
[[nodiscard]] std::vector<Scenario>& scenarios();
struct Registered {
  explicit Registered(Scenario scenario) { scenarios().push_back(std::move(scenario)); }
};

// --- for the threads of a scenario ------------------------------------------------------------

// Ends the execution as a failed one if it is one that can be.
void require(bool condition, const char* what);
// In place of what the system gives. Thread-safe.
[[nodiscard]] unsigned self() noexcept;  // 0 outside of the threads
void yield();
void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected);
void futex_wake(std::atomic<std::uint32_t>* word, int count);
void barrier();
// Plain accesses to these bytes are checked for races, until the next execution.
void watch(const void* from, std::size_t bytes);
// Remembers what an execution came to; see Result.
void note(const std::string& outcome);

// --- the search -------------------------------------------------------------------------------

// A place in the program: the address of the instruction behind the access, from the start of the
// program.
using Site = std::uintptr_t;
inline constexpr Site kBarrierSite = 1;  // of all barriers that the system makes
struct SiteUse {
  const char* operation;
  Order order;
  Order failure;  // of a compare-and-exchange
};
struct Options {
  bool is_random = false;
  std::uint64_t seed = 1;
  std::uint64_t most_executions = 2'000'000;
  std::map<Site, Order> weakened;
};
struct Result {
  bool is_complete = false;        // all executions were visited
  std::uint64_t executions = 0;    // that ended
  std::uint64_t redundant = 0;     // left as the same as others
  std::uint64_t inconsistent = 0;  // left as not allowed
  std::string failure;             // of the first failed execution; empty: none
  std::uint64_t seed = 0;          // that repeats it, if random
  std::set<std::string> outcomes;  // as noted, of executions that ended
  std::map<Site, SiteUse> sites;
};
[[nodiscard]] Result explore(const Scenario& scenario, const Options& options);

// --- for abi.cpp ------------------------------------------------------------------------------

enum class Kind : std::uint8_t { load, store, modify, compare, fence, yield, wait, wake, barrier };
struct Step {
  Kind kind;
  std::uint8_t bytes;
  Order order, failure;
  std::uintptr_t address;
  std::uint64_t operand, expected;
  std::uint64_t (*function)(std::uint64_t old, std::uint64_t operand);  // of a modify
  const char* operation;
  Site site;
};
// Executes a step of the calling thread. Returns the value that was read.
std::uint64_t step(Step step);
void plain(std::uintptr_t address, unsigned bytes, bool is_write, Site site);

}  // namespace order
