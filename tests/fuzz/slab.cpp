// Any sequence of calls on a slab, chosen by the fuzzer, keeps every promise.
#include "../model/slab_player.hpp"
#include "bytes.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace allod::test;
  Bytes bytes{data, size};
  SlabPlayer player{bytes};
  for (int steps = 0; bytes.more() && steps < 300; ++steps) {
    player.step();
    if (steps % 16 == 0) player.check();
  }
  player.finish();
  return 0;
}
