// The helper thread: it ends when its work is done, is wanted again, and is sent away by forks.
#include "world.hpp"

namespace order {
namespace {

// Two blocks are worth a helper.
constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr std::int32_t kDelayMs = 8;
// Of a helper that gives back a block.
constexpr std::uint32_t kSleeps = 2;
World world;
World::Domain* domains[kThreads];
void* blocks[3];

// Of two threads that free memory, each has a domain. The helper is the last thread.
void begin(unsigned owners, bool is_started) {
  world.begin(false, kDelayMs);
  for (unsigned i = 1; i < kThreads; ++i) domains[i] = i <= owners ? &world.attach() : nullptr;
  for (void*& block : blocks) block = world.allocate(*domains[1], kHuge);
  if (is_started) world.release(*domains[1], blocks[2]);
}
void free_block(unsigned thread) { world.release(*domains[thread], blocks[thread - 1]); }
// Whoever frees memory may make no more calls: a helper gives it back, or is still to come.
void all_went_back() {
  world.heap().check_invariants();
  const allod::space::SpaceCounters counters = world.heap().space().counters();
  require(counters.dirty < (std::size_t{1} << 20), "freed memory stays, and there is no helper");
  for (const World::Domain* const domain : domains) {
    require(domain == nullptr || domain->kept.reserved == 0, "a block is kept without a helper");
  }
}

const bool kRegistered = [] {
  const auto add = [](const char* name, const char* about, unsigned owners, bool is_started,
                      std::function<void(unsigned)> run) {
    const unsigned helper = owners + 1;
    scenarios().push_back({name, about, helper, [owners, is_started] { begin(owners, is_started); },
                           [] { world.end(); },
                           [helper, run = std::move(run)](unsigned thread) {
                             thread == helper ? Platform::run_helper() : run(thread);
                           },
                           all_went_back});
  };
  add("helper_again", "memory is freed while the helper ends", 1, true, [](unsigned thread) {
    Platform::await_sleeps(kSleeps);
    free_block(thread);
    Platform::end_helper();
  });
  return true;
}();

}  // namespace
}  // namespace order
