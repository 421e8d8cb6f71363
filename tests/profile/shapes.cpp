// Known shapes of a heap: what the profile must say about them is in test_profile.py.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace shapes {

using Blocks = std::vector<void*>;
void* volatile sink;

[[gnu::noinline]] void* block(std::size_t bytes) {
  void* const made = std::malloc(bytes);
  sink = made;
  return made;
}

// 8 MiB that nobody frees.
[[gnu::noinline]] void leak() {
  for (int i = 0; i < 8192; ++i) block(1024);
}
// 4 MiB that are kept.
[[gnu::noinline]] void keep(Blocks& blocks) {
  for (int i = 0; i < 64; ++i) blocks.push_back(block(65536));
}
// 32 MiB for a moment, more than ever again.
[[gnu::noinline]] void rise_and_fall() {
  Blocks blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(block(1 << 20));
  for (void* each : blocks) std::free(each);
}
// 64 MiB, a little at a time.
[[gnu::noinline]] void churn() {
  for (int i = 0; i < 524288; ++i) std::free(block(128));
}
inline __attribute__((always_inline)) void* inlined(std::size_t bytes) { return block(bytes); }
[[gnu::noinline]] void calls_inlined() {
  for (int i = 0; i < 32; ++i) inlined(1 << 18);
}

}  // namespace shapes

int main() {
  shapes::Blocks kept;
  shapes::leak();
  shapes::keep(kept);
  shapes::calls_inlined();
  shapes::rise_and_fall();
  shapes::churn();
  shapes::sink = &kept;
}
