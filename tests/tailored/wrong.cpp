// Compositions that must not compile: one of them, chosen by -DWRONG=NUMBER. What the compiler has
// to say is beside each.
#include <allod.hpp>

namespace {

struct Oblivious {};  // is no part at all

struct Wrong : allod::Parts {
#if WRONG == 0
  // (compiles)
#elif WRONG == 1
  // size classes must be given in ascending order, each once
  using Sizes = allod::FixedClasses<64, 32>;
#elif WRONG == 2
  // the size of a class is a multiple of 8 bytes, and at most 1 MiB
  using Sizes = allod::FixedClasses<32, 63>;
#elif WRONG == 3
  // the size of a slab is a power of two from 4 KiB to 64 MiB
  using Sizes = allod::Classes<allod::SizeClass<32, 5000>>;
#elif WRONG == 4
  // a slab must hold at least one block of its class
  using Sizes = allod::Classes<allod::SizeClass<8192, 4096>>;
#elif WRONG == 5
  // a slab must fit twice into a chunk of the page source
  using Sizes = allod::FixedClasses<1 << 20>;
#elif WRONG == 6
  // a heap without size classes needs Storage = allod::AnySize<>
  using Sizes = allod::NoClasses;
#elif WRONG == 7
  // Sizes must name size classes, as allod::FixedClasses<32, 64, 256> does
  using Sizes = Oblivious;
#elif WRONG == 8
  // Pages must be a page source, such as allod::SystemPages<>
  using Pages = Oblivious;
#elif WRONG == 9
  // the lock of Threads must have lock() and unlock()
  using Threads = allod::Central<Oblivious>;
#elif WRONG == 10
  // Recycling must say when, as allod::RecycleAtOnce<> does
  using Recycling = Oblivious;
#elif WRONG == 11
  // Observer must have allocated(), freed() and ended()
  using Observer = Oblivious;
#elif WRONG == 12
  // a geometric scheme goes from one power of two to another, in 1, 2, 4, 8 or 16 steps
  using Sizes = allod::PowersOfTwo<24, 1024>;
#elif WRONG == 13
  // the heap of a process needs Storage = allod::AnySize<>
  using Threads = allod::ThreadCaching<>;
#elif WRONG == 14
  // the heap of a process needs Threads = allod::ThreadCaching<> or allod::Central<>
  using Storage = allod::AnySize<>;
#elif WRONG == 15
  // the size classes of the heap of a process are multiples of 16 bytes
  using Sizes = allod::FixedClasses<16, 24>;
  using Storage = allod::AnySize<>;
  using Threads = allod::ThreadCaching<>;
#elif WRONG == 16
  // no size class of the heap holds so large a block
  using Sizes = allod::FixedClasses<64>;
#endif
};

}  // namespace

void* try_it() {
#if WRONG >= 13 && WRONG <= 15
  return allod::tailored::ProcessHeap<allod::Tailored<Wrong>>::allocate(1);
#elif WRONG == 16
  static allod::Tailored<Wrong> heap;
  return heap.allocate<65>();
#else
  static allod::Tailored<Wrong> heap;
  return heap.allocate(16);
#endif
}
