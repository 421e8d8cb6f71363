// Functions whose instructions are counted, and looked at for atomic ones.
#include <allod.hpp>

namespace {

struct Plain : allod::Parts {
  using Sizes = allod::FixedClasses<32, 64, 256>;
};
struct Cached : Plain {
  using Threads = allod::ThreadCaching<>;
};

#ifndef ONE_THREAD_ONLY
constinit allod::Tailored<Cached> cached{"cached"};
#endif
constinit allod::Tailored<Plain> plain{"plain"};

}  // namespace

extern "C" {

void* tailored_allocate() { return plain.allocate<64>(); }
void tailored_deallocate_sized(void* block) { plain.deallocate<64>(block); }
void tailored_deallocate(void* block) { plain.deallocate(block); }
void* tailored_allocate_any(std::size_t size) { return plain.allocate(size); }

#ifdef ONE_THREAD_ONLY
// The rest of what such a heap does.
std::size_t tailored_recycle() { return plain.recycle() + plain.figures().live_blocks; }
void* tailored_aligned(std::size_t size) { return plain.allocate_aligned(size, 64); }
void* tailored_reallocate(void* block, std::size_t size) { return plain.reallocate(block, size); }
void tailored_reset() { plain.reset(); }
#else
void* cached_allocate() { return cached.allocate<64>(); }
void cached_deallocate_sized(void* block) { cached.deallocate<64>(block); }
void cached_deallocate(void* block) { cached.deallocate(block); }
#endif
}

#ifndef ONE_THREAD_ONLY
int main() {
  void* const block = tailored_allocate();
  tailored_deallocate(block);
  void* const other = cached_allocate();
  cached_deallocate(other);
  return block == nullptr || other == nullptr;
}
#endif
