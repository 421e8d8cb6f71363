// Heaps that lean to a thread, whose turns are plain stores, and whoever ends that.
#include <optional>

#include "allod/heaps/turn.hpp"
#include "world.hpp"

namespace order::leaning {
namespace {

using Gate = allod::heap::ForkGate<Platform>;
using Turns = allod::heaps::HeapTurns<World::Lock>;
using Turn = allod::heaps::HeapTurn<Turns, Gate>;
using allod::heaps::Seat;

std::optional<Platform> platform;
alignas(64) unsigned char turns_place[sizeof(Turns)];
alignas(64) unsigned char gate_place[sizeof(Gate)];
Turns* turns;
Gate* gate;
Seat seats[kThreads];
int guarded;  // by turns
alignas(64) unsigned char other_place[sizeof(Turns)];
Turns* other;  // of another heap that leans to the same thread

void begin() {
  Platform::has_barriers = true;
  Platform::forget_threads();
  platform.emplace();
  turns = new (turns_place) Turns;
  gate = new (gate_place) Gate;
  gate->start(*platform);
  for (Seat& seat : seats) seat.on.store(nullptr);
  other = new (other_place) Turns;
  turns->lean_to(seats[1]);
  other->lean_to(seats[1]);
  guarded = 0;
  watch(&guarded, sizeof guarded);
  watch(turns_place, sizeof turns_place);
}
void end() { platform.reset(); }

void take_turn(unsigned thread) {
  Platform::own_word() = &seats[thread];
  const Turn turn{*turns, *gate};
  ++guarded;
}
// As a fork, or a pause: nobody is in a turn meanwhile.
void look() {
  gate->close(*platform);
  while (!turns->is_quiet()) gate->yield();
  ++guarded;
  gate->open();
}
// Another thread may see that this one left by what it announces next.
void take_two_turns() {
  take_turn(1);
  const Turn turn{*other, *gate};
}
void check() { require(guarded == 2, "not excluded"); }

const bool kRegistered = [] {
  scenarios().push_back({"lean", "another thread takes a turn on a heap that leans to one", 2,
                         begin, end, take_turn, check});
  scenarios().push_back(
      {"lean_twice", "the same while that one goes on to another heap", 2, begin, end,
       [](unsigned thread) { thread == 1 ? take_two_turns() : take_turn(2); }, check});
  scenarios().push_back({"lean_again", "the same while that one takes its next turn", 2, begin, end,
                         [](unsigned thread) {
                           take_turn(thread);
                           if (thread == 1) take_turn(1);
                         },
                         [] { require(guarded == 3, "not excluded"); }});
  scenarios().push_back({"lean_to_nobody",
                         "two threads take turns on a heap that leaned to a third", 2, begin, end,
                         [](unsigned thread) { take_turn(thread + 1); }, check});
  scenarios().push_back({"lean_and_pause", "a pause finds no turn of the thread that it leans to",
                         2, begin, end,
                         [](unsigned thread) { thread == 1 ? take_turn(1) : look(); }, check});
  scenarios().push_back({"lean_again_and_pause", "the same while that one takes its next turn", 2,
                         begin, end,
                         [](unsigned thread) {
                           if (thread == 2) return look();
                           take_turn(1);
                           take_turn(1);
                         },
                         [] { require(guarded == 3, "not excluded"); }});
  scenarios().push_back({"locked_and_pause", "a pause finds no turn of a thread with the lock", 2,
                         [] {
                           begin();
                           turns->lean_to_nobody();
                         },
                         end, [](unsigned thread) { thread == 1 ? take_turn(1) : look(); }, check});
  return true;
}();

}  // namespace
}  // namespace order::leaning
