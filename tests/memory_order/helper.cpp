// The helper thread, which ends when its work is done, while memory is freed.
#include "world.hpp"

namespace order::helper {
namespace {

// Worth a helper.
constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr std::int32_t kDelayMs = 8;
// A helper that gives back one block sleeps so often.
constexpr std::uint32_t kSleeps = 2;
World world;
World::Domain* domain;
void* block;

// A first block has been freed, and the helper that is to give it back has been started.
void begin() {
  world.begin(false, kDelayMs);
  domain = &world.attach();
  void* const first = world.allocate(*domain, kHuge);
  block = world.allocate(*domain, kHuge);
  world.release(*domain, first);
}
void free_after(void (*wait)() noexcept) {
  wait();
  world.release(*domain, block);
  Platform::end_helper();
}
// The program makes no more calls: what it freed must not wait for one.
void all_went_back() {
  world.heap().check_invariants();
  const allod::space::SpaceCounters counters = world.heap().space().counters();
  require(counters.dirty < (std::size_t{1} << 20), "freed memory stays, and there is no helper");
  require(domain->kept.reserved == 0, "a block is kept without a helper");
}

const Registered kAgain{
    {"helper_again", "memory is freed before the helper ends", 2, begin, [] { world.end(); },
     [](unsigned thread) {
       thread == 1 ? free_after([]() noexcept { Platform::await_sleeps(kSleeps); })
                   : Platform::run_helper();
     },
     all_went_back}};
const Registered kReturned{{"helper_returned", "memory is freed before the helper's thread is gone",
                            2, begin, [] { world.end(); },
                            [](unsigned thread) {
                              thread == 1 ? free_after(Platform::await_return)
                                          : Platform::run_helper();
                            },
                            all_went_back}};

}  // namespace
}  // namespace order::helper
