// Any sequence of calls on a heap, chosen by the fuzzer, keeps every promise.
#include "../model/heap_player.hpp"
#include "bytes.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace allod::test;
  Bytes bytes{data, size};
  auto program = std::make_unique<FakeProgram>();
  HeapPlayer player{bytes, *program};
  if (!player.start()) return 0;
  for (int steps = 0; bytes.more() && steps < 2000; ++steps) {
    player.step();
    if (steps % 256 == 0) player.check();
  }
  player.finish();
  return 0;
}
