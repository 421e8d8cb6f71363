// Locks that sleep.
#include "world.hpp"

namespace order::locks {
namespace {

using Lock = World::Lock;
using allod::LockRank;

alignas(64) unsigned char place[2][sizeof(Lock)];
Lock* locks[2];
int guarded;

void begin() {
  locks[0] = new (place[0]) Lock{LockRank::domain};
  locks[1] = new (place[1]) Lock{LockRank::space};
  guarded = 0;
  watch(&guarded, sizeof guarded);
}

const Registered kLock{{"lock", "a lock keeps two threads apart, which may sleep", 2, begin, [] {},
                        [](unsigned) {
                          locks[0]->lock();
                          ++guarded;
                          locks[0]->unlock();
                        },
                        [] { require(guarded == 2, "not excluded"); }}};
const Registered kLockOfThree{{"lock_of_three", "and three", 3, begin, [] {},
                               [](unsigned) {
                                 locks[0]->lock();
                                 ++guarded;
                                 locks[0]->unlock();
                               },
                               [] { require(guarded == 3, "not excluded"); }}};
const Registered kTryLock{{"try_lock", "a lock that is tried hands over as well", 2, begin, [] {},
                           [](unsigned thread) {
                             if (thread == 1) {
                               locks[0]->lock();
                             } else if (!locks[0]->try_lock()) {
                               return;
                             }
                             ++guarded;
                             locks[0]->unlock();
                           },
                           [] { require(guarded >= 1, "not excluded"); }}};
const Registered kRanks{{"lock_ranks", "two locks in the order of their ranks", 2, begin, [] {},
                         [](unsigned) {
                           const allod::LockGuard outer{*locks[0]};
                           const allod::LockGuard inner{*locks[1]};
                           ++guarded;
                         },
                         [] { require(guarded == 2, "not excluded"); }}};

}  // namespace
}  // namespace order::locks
