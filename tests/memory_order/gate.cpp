// The gate by which a thread keeps all others out of slow paths, and what is done meanwhile.
#include "world.hpp"

namespace order::gate {
namespace {

constexpr std::size_t kSize = 4096;
World world;
World::Domain* domains[kThreads];
void* mine;    // a block of domain 1
void* others;  // of domain 1 too; thread 2 frees it in vain, as the owner rests
void* taken;

void begin(bool barriers) {
  world.begin(barriers);
  for (unsigned i = 1; i <= 2; ++i) domains[i] = &world.attach();
  mine = world.allocate(*domains[1], kSize);
  others = world.allocate(*domains[1], kSize);
  taken = nullptr;
  world.heap().give_up(*domains[1]);
}
void take() {
  taken = world.heap().allocate(*domains[1], kSize, nullptr);
  *static_cast<volatile int*>(taken) = 1;
}
// Whoever is between close and open finds nothing half changed.
void fork() {
  world.heap().before_fork(domains[2]);
  world.heap().check_invariants();
  world.heap().after_fork_in_parent();
}
void add(bool barriers, const char* name, const char* about, void (*first)(), void (*second)()) {
  scenarios().push_back({name, about, 2, [barriers] { begin(barriers); }, [] { world.end(); },
                         [first, second](unsigned thread) { thread == 1 ? first() : second(); },
                         [] { world.heap().check_invariants(); }});
}

const bool kRegistered = [] {
  add(false, "fork_fence", "a fork finds slabs at rest, by fences", take, fork);
  add(true, "fork_barrier", "a fork finds slabs at rest, by a barrier of the system", take, fork);
  const auto collect = [] { world.heap().collect_for_others(); };
  const auto free_before = [](bool barriers) {
    return [barriers] {
      begin(barriers);
      world.release(*domains[2], others);
    };
  };
  add(false, "collect_fence", "remote frees are collected for an owner that begins to move", take,
      collect);
  scenarios().back().begin = free_before(false);
  add(true, "collect_barrier", "the same by a barrier of the system", take, collect);
  scenarios().back().begin = free_before(true);
  // Of a thread that has no domain, which no gate keeps out.
  const auto free_now = [] {
    *static_cast<volatile int*>(others) = 2;
    world.heap().release_detached(others);
  };
  add(false, "collect_while_freed", "remote frees are collected while they come", free_now,
      collect);
  const auto purge = [] { world.heap().purge_slabs(); };
  add(false, "purge_fence", "free pages are purged while their owner takes blocks", take, purge);
  add(true, "purge_barrier", "the same by a barrier of the system", take, purge);
  return true;
}();

}  // namespace
}  // namespace order::gate
