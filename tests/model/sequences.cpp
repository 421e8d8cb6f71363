// Random sequences of calls against models of what must be true.
#include <gtest/gtest.h>

#include "heap_player.hpp"
#include "slab_player.hpp"
#include "space_player.hpp"

namespace allod::test {
namespace {

class Sequence : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(seeds, Sequence, testing::Range(std::uint64_t{1}, std::uint64_t{9}));

TEST_P(Sequence, of_a_space_keeps_spans_apart_whole_and_accounted_for) {
  for (std::uint64_t part = 0; part < 4; ++part) {
    Random random{GetParam() * 100 + part};
    auto space = std::make_unique<FakeSpace>();
    SpacePlayer player{random, *space};
    if (!player.start()) continue;
    for (int step = 0; step < 400; ++step) {
      player.step();
      if (step % 20 == 0) player.check();
    }
    player.finish();
  }
}

TEST_P(Sequence, of_a_heap_keeps_blocks_apart_whole_and_accounted_for) {
  Random random{GetParam()};
  auto program = std::make_unique<FakeProgram>();
  HeapPlayer player{random, *program};
  if (!player.start()) return;
  for (int step = 0; step < 6000; ++step) {
    player.step();
    if (step % 500 == 0) player.check();
  }
  player.finish();
}

TEST_P(Sequence, of_a_slab_loses_no_block) {
  for (std::uint64_t part = 0; part < 10; ++part) {
    Random random{GetParam() * 1000 + part};
    SlabPlayer player{random};
    for (int step = 0; step < 300; ++step) {
      player.step();
      player.check();
    }
    player.finish();
  }
}

}  // namespace
}  // namespace allod::test
