// Blocks that other threads free, and owners that come and go meanwhile.
#include "world.hpp"

namespace order::remote {
namespace {

using Domain = World::Domain;

// Large enough that a remote free is sent at once, and small enough that a slab has many.
constexpr std::size_t kLarge = 4096;
// Small enough that a slab has more than a word of bits.
constexpr std::size_t kSmall = 512;
std::size_t size;

World world;
Domain* domains[kThreads];
void* blocks[3];  // of domain 1 at first, all in one slab
bool is_freed[3];
void* taken[kThreads];  // by the domain

// The last block is in use throughout.
void begin(unsigned owners, std::size_t block_size = kLarge) {
  size = block_size;
  world.begin();
  for (unsigned i = 1; i < kThreads; ++i) domains[i] = nullptr;
  for (void*& block : taken) block = nullptr;
  for (bool& block : is_freed) block = false;
  for (unsigned i = 1; i <= owners; ++i) domains[i] = &world.attach();
  if (size == kSmall) {
    // The first two in different words.
    void* others[allod::kWordBits + 2];
    for (void*& block : others) block = world.allocate(*domains[1], size);
    blocks[0] = others[0];
    blocks[1] = others[allod::kWordBits];
    blocks[2] = others[allod::kWordBits + 1];
    for (unsigned i = 1; i < allod::kWordBits; ++i) world.release(*domains[1], others[i]);
  } else {
    for (void*& block : blocks) block = world.allocate(*domains[1], size);
  }
  // What is at hand would hide the slab.
  world.heap().give_up(*domains[1]);
}
void end() { world.end(); }

void take(unsigned thread) {
  taken[thread] = world.heap().allocate(*domains[thread], size, nullptr);
  require(taken[thread] != nullptr, "no block");
  *static_cast<volatile int*>(taken[thread]) = 1;
}
void free_remotely(unsigned thread, unsigned block) {
  is_freed[block] = true;
  world.release(*domains[thread], blocks[block]);
}
// Blocks of different words of one slab, one after the other.
void free_both_remotely(unsigned thread) {
  free_remotely(thread, 0);
  free_remotely(thread, 1);
  world.heap().give_up(*domains[thread]);
}
void leave(unsigned thread) {
  world.heap().detach(*domains[thread]);
  domains[thread] = nullptr;
}

// Whoever owns the slab finds in its next slow path what was freed, and nothing else is needed.
void all_came_home() {
  for (unsigned i = 1; i < kThreads; ++i) {
    if (domains[i] == nullptr) continue;
    void* const block = world.heap().allocate(*domains[i], size, nullptr);
    world.release(*domains[i], block);
  }
  const allod::slab::Slab& slab = world.program().slab_of(blocks[2]);
  require(slab.owner() == nullptr || slab.remote_count() == 0, "the owner does not know of a free");
  require(slab.owner() == nullptr || !slab.is_announced(), "announced, but in no inbox");
  Domain& last = world.attach();
  for (void* const block : taken) {
    if (block != nullptr) world.release(last, block);
  }
  for (unsigned i = 0; i < 3; ++i) {
    if (!is_freed[i]) world.release(last, blocks[i]);
  }
  for (Domain* const domain : domains) {
    if (domain != nullptr) world.heap().detach(*domain);
  }
  void* const block = world.allocate(last, size);
  world.release(last, block);
  world.heap().detach(last);
  world.heap().check_invariants();
  require(world.heap().space().counters().used == 0, "a freed block is lost");
}

const bool kRegistered = [] {
  const auto add = [](const char* name, const char* about, unsigned threads, unsigned owners,
                      std::function<void(unsigned)> run) {
    scenarios().push_back(
        {name, about, threads, [owners] { begin(owners); }, end, std::move(run), all_came_home});
  };
  add("remote_free", "a block goes home while its owner takes one", 2, 2, [](unsigned thread) {
    if (thread == 1) return take(1);
    free_remotely(2, 0);
  });
  add("remote_frees", "one thread frees two blocks while the owner looks twice", 2, 2,
      [](unsigned thread) {
        if (thread == 1) {
          take(1);
          return world.heap().give_up(*domains[1]);
        }
        free_remotely(2, 0);
        free_remotely(2, 1);
      });
  add("remote_free_by_two", "two threads free blocks of one slab while the owner takes one", 3, 3,
      [](unsigned thread) {
        if (thread == 1) return take(1);
        free_remotely(thread, thread - 2);
      });
  add("remote_words", "the owner looks for frees in two words while they come", 2, 2,
      [](unsigned thread) {
        if (thread == 1) return take(1);
        free_both_remotely(2);
      });
  scenarios().back().begin = [] { begin(2, kSmall); };
  add("late_free", "the owner ends while a block is freed", 2, 2, [](unsigned thread) {
    if (thread == 1) return leave(1);
    free_remotely(2, 0);
  });
  add("adoption", "an orphan is adopted while a block is freed", 2, 3, [](unsigned thread) {
    if (thread == 1) return take(2);
    free_remotely(3, 0);
  });
  scenarios().back().begin = [] {
    begin(3);
    leave(1);
  };
  add("adoption_by_new", "an orphan is adopted by a thread that has just begun", 2, 3,
      [](unsigned thread) {
        if (thread == 2) return free_remotely(3, 0);
        domains[1] = &world.attach();
        take(1);
      });
  scenarios().back().begin = [] {
    begin(3);
    leave(1);
    // Another begins with what that one had.
    domains[4] = &world.attach();
  };
  add("adoption_and_two", "an orphan is adopted while two threads free blocks of it", 3, 4,
      [](unsigned thread) {
        if (thread == 1) return take(2);
        free_remotely(thread + 1, thread - 2);
        world.heap().give_up(*domains[thread + 1]);
      });
  scenarios().back().begin = [] {
    begin(4, kSmall);
    leave(1);
  };
  add("two_adopters", "two threads want the same orphan while a block is freed", 3, 4,
      [](unsigned thread) {
        if (thread != 3) return take(thread + 1);
        free_remotely(4, 0);
      });
  scenarios().back().begin = [] {
    begin(4);
    leave(1);
  };
  add("late_free_adopted", "the owner ends and another takes over while a block is freed", 3, 3,
      [](unsigned thread) {
        if (thread == 1) return leave(1);
        if (thread == 2) return take(2);
        free_remotely(3, 0);
      });
  add("late_free_without_domain", "the same by a thread that has no domain", 2, 2,
      [](unsigned thread) {
        if (thread == 1) return leave(1);
        is_freed[0] = true;
        *static_cast<volatile int*>(blocks[0]) = 2;
        world.heap().release_detached(blocks[0]);
      });
  add("registry", "threads end, and others begin with what they had", 2, 2, [](unsigned thread) {
    leave(thread);
    domains[thread + 2] = &world.attach();
    take(thread + 2);
  });
  return true;
}();

}  // namespace
}  // namespace order::remote
