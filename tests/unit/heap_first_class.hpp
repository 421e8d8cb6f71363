// First-class heaps on a fake system.
#pragma once

#include <set>

#include "heap_world.hpp"

namespace allod::test {

class FirstClassHeap : public HeapWorld {
 protected:
  using HeapDomain = FakeProgram::Heap::HeapDomain;

  void SetUp() override {
    HeapWorld::SetUp();
    caller = &attach();
  }
  // A thread to which heaps may lean.
  Domain& attach() {
    Domain& domain = HeapWorld::attach();
    always_check(heap.take_seat(), "no seat");
    return domain;
  }
  HeapDomain& create(const char* name = nullptr) {
    HeapDomain* const made = heap.create_heap(name);
    always_check(made != nullptr, "no heap");
    return *made;
  }
  void* allocate_in(HeapDomain& in, std::size_t size, std::size_t alignment = 1) {
    heaps::HeapRequest request{.size = size, .alignment = alignment};
    return heap.allocate_in(caller, in, request);
  }
  std::vector<void*> fill(HeapDomain& in, std::size_t count, std::size_t size) {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) block = allocate_in(in, size);
    return blocks;
  }
  void release_in(HeapDomain& in, void* block) { heap.release_in(caller, in, block); }
  heaps::HeapFigures figures(HeapDomain& of) { return heap.figures_of(of); }
  std::set<void*> walk(HeapDomain& through) {
    std::set<void*> seen;
    EXPECT_TRUE(heap.walk_heap(through, [&](void* block, std::size_t bytes) {
      EXPECT_EQ(bytes, heap.usable_size(block));
      EXPECT_TRUE(seen.insert(block).second) << "a block is told twice";
      return true;
    }));
    return seen;
  }
  std::size_t count_orphans() {
    std::size_t count = 0;
    LockGuard guard{heap.registry_lock()};
    heap.for_each_orphan([&](const Slab&) { ++count; });
    return count;
  }
  static heaps::Seat& seat() { return *static_cast<heaps::Seat*>(Fake::own_word()); }
  static bool leans_to_nobody(const HeapDomain& own) {
    return own.leans_to.load() == &heaps::nobodys_seat;
  }
  static const void* in_turn_on(const heaps::HeapTurns<FakeProgram::Heap::Lock>& turns) {
    return &turns;
  }
  // Puts whoever has the seat into a turn on a heap, and out again once somebody has waited for it
  // three times.
  void occupy(heaps::Seat& seat, const heaps::HeapTurns<FakeProgram::Heap::Lock>& turns) {
    seat.on.store(&turns);
    yields_ = 0;
    system.set_observer([this, &seat](Fake::Call call) {
      if (call == Fake::Call::yield && ++yields_ == 3) seat.on.store(nullptr);
    });
  }
  void expect_waited_for() {
    EXPECT_EQ(yields_, 3);
    system.set_observer({});
  }
  // Marks a block as a thread does that finds the heap in use.
  void mark(void* block) { heap.release_detached(block); }

  Domain* caller = nullptr;

 private:
  int yields_ = 0;
};

}  // namespace allod::test
