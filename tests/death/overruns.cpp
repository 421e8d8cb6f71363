// Writes where the program must not write, and deletes of the wrong kind: what the hardened library
// sees when the block comes back.
#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "blocks.hpp"

// Of the library, if it is there.
extern "C" [[gnu::weak]] int allod_profile_start(std::size_t interval);
extern "C" [[gnu::weak]] long allod_leaks_check();
extern "C" [[gnu::weak]] void* allod_heap_new();
extern "C" [[gnu::weak]] void* allod_heap_realloc(void* heap, void* block, std::size_t size);

extern "C" {

OWN_FRAME void* using_new(std::size_t bytes) { return hidden(::operator new(bytes)); }
OWN_FRAME void* using_array_new(std::size_t bytes) { return hidden(::operator new[](bytes)); }
OWN_FRAME void using_delete(void* block) {
  ::operator delete(block);
  KEEP_FRAME();
}
OWN_FRAME void using_array_delete(void* block) {
  ::operator delete[](block);
  KEEP_FRAME();
}
OWN_FRAME void asking_for_usable_size(void* block) {
  CHECK(malloc_usable_size(block) == size(), "usable size");
  KEEP_FRAME();
}

}  // extern "C"

CASE(write_behind_a_block) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  misusing_function(block);
  survive();
}

// Alignments leave much room behind what was asked for.
CASE(write_behind_an_aligned_block) {
  void* block = aligned_alloc(parameter("TEST_ALIGNMENT"), size());
  CHECK(block != nullptr, "no block");
  CHECK(malloc_usable_size(block) == size(), "more than was asked for");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  freeing_function(block);
  survive();
}

CASE(write_far_behind_an_aligned_block) {
  void* block = tell_block(aligned_alloc(parameter("TEST_ALIGNMENT"), size()));
  CHECK(block != nullptr, "no block");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

CASE(write_behind_a_block_that_is_resized) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(misusing_realloc(block, 3 * size()));
  survive();
}

// Where it is, if its class or its pages allow.
CASE(write_behind_a_block_that_has_changed_a_little) {
  void* block = allocating_function(size() - 16);
  std::memset(block, 1, size() - 16);
  for (const std::size_t next : {size() + 16, size() - 8, size()}) {
    block = std::realloc(block, next);
    CHECK(block != nullptr && malloc_usable_size(block) == next, "%zu bytes", next);
    const auto* byte = static_cast<unsigned char*>(block);
    CHECK(byte[0] == 1 && byte[size() - 17] == 1, "content");
    std::memset(block, 1, next);
  }
  tell_block(block);
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  misusing_function(block);
  survive();
}

CASE(write_behind_a_block_that_is_asked_about) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  asking_for_usable_size(block);
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(block);
  survive();
}

// The block before, in the same slab, is the one that is damaged.
CASE(write_before_a_block) {
  enum { kBlocks = 256 };
  static char* blocks[kBlocks];
  for (char*& block : blocks) block = static_cast<char*>(allocating_function(size()));
  for (char* first : blocks) {
    for (char* second : blocks) {
      if (second != first + parameter("TEST_CLASS")) continue;
      tell_block(first);
      flip(second, -static_cast<std::ptrdiff_t>(offset()));
      misusing_function(second);
      flip(first, static_cast<std::ptrdiff_t>(parameter("TEST_CLASS") - offset()));
      freeing_function(first);
      return survive();
    }
  }
  CHECK(false, "no two blocks are neighbours");
}

CASE(write_behind_a_block_until_the_end) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

// By every function that gives a block, and from there to any size.
CASE(writes_up_to_the_usable_size) {
  const auto use = [](void* block, std::size_t asked_for) {
    const std::size_t usable = malloc_usable_size(block);
    CHECK(block != nullptr && usable >= asked_for, "%zu of %zu bytes", usable, asked_for);
    std::memset(hidden(block), 0x5a, usable);
    return block;
  };
  for (std::size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 3 + 1) {
    std::free(use(std::malloc(bytes), bytes));
    std::free(use(std::calloc(bytes, 1), bytes));
    for (const std::size_t alignment : {16, 64, 4096, 1 << 17}) {
      std::free(use(aligned_alloc(alignment, bytes), bytes));
    }
    ::operator delete(use(::operator new(bytes), bytes));
    void* block = use(std::malloc(bytes / 2), bytes / 2);
    for (const std::size_t next : {bytes, 2 * bytes, bytes / 3 + 1}) {
      block = use(std::realloc(block, next), next);
    }
    std::free(block);
  }
  std::free(use(std::malloc(0), 0));
  survive();
}

CASE(write_after_free) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
  free_many();
  survive();
}

CASE(write_after_free_until_the_end) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}

CASE(double_free_after_the_quarantine) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (int i = 0; i < 200; ++i) freeing_function(allocating_function(3000));
  misusing_function(block);
  survive();
}

// These end by a signal.
CASE(write_to_a_block_of_no_bytes) { flip(allocating_function(0), 0); }
// Of the places for these, some are in use, one behind the other.
CASE(write_to_one_more_block_of_no_bytes) {
  constexpr std::size_t kPlaces = std::size_t{1} << 20;
  std::size_t i = 0;
  for (; i < parameter("TEST_KEPT"); ++i) hidden(malloc(0));
  for (; i < kPlaces; ++i) free(hidden(malloc(0)));
  void* block = tell_block(allocating_function(0));
  flip(block, 0);
  misusing_function(block);
}
CASE(write_to_a_large_block_after_free) {
  void* block = allocating_function(size());
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
// Nearly all of it is in memory.
CASE(write_to_a_used_large_block_after_free) {
  void* block = tell_block(allocating_function(size()));
  std::memset(block, 1, size());
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
CASE(write_far_behind_a_large_block) {
  flip(allocating_function(size()), static_cast<std::ptrdiff_t>(size() + offset()));
}

// The size looks like about that of the block to whoever counts slices in 32 bits.
CASE(write_behind_a_large_block_after_realloc_has_failed) {
  void* block = tell_block(allocating_function(size()));
  const std::size_t impossible = (std::size_t{1} << 48) + size() + 60000;
  CHECK(realloc(hidden(block), hidden_size(impossible)) == nullptr, "realloc");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

CASE(double_free_of_a_block_of_no_bytes) {
  void* block = tell_block(allocating_function(0));
  freeing_function(block);
  misusing_function(block);
  survive();
}

CASE(new_and_free) {
  misusing_function(tell_block(using_new(size())));
  survive();
}
CASE(new_and_realloc) {
  static_cast<void>(misusing_realloc(tell_block(using_new(size())), size() + 1));
  survive();
}
CASE(new_and_realloc_and_delete) {
  void* const block = using_new(size());
  CHECK(realloc(hidden(block), size() + 1) == nullptr && errno == ENOMEM, "realloc");
  ::operator delete(block);
}
CASE(new_and_heap_realloc_and_delete) {
  void* const block = using_new(size());
  void* const moved = allod_heap_realloc(allod_heap_new(), block, size() + 1);
  CHECK(moved == nullptr && errno == ENOMEM, "realloc");
  ::operator delete(block);
}
CASE(usable_sizes_are_those_asked_for) {
  for (std::size_t alignment = 8; alignment <= 8192; alignment *= 2) {
    for (std::size_t bytes = 1; bytes < 3000; bytes += bytes < 300 ? 1 : 67) {
      void* const block = alignment == 8 ? malloc(bytes) : aligned_alloc(alignment, bytes);
      CHECK(malloc_usable_size(block) == bytes, "%zu for %zu aligned to %zu",
            malloc_usable_size(block), bytes, alignment);
      free(block);
    }
  }
}
CASE(malloc_and_delete) {
  using_delete(tell_block(allocating_function(size())));
  survive();
}
CASE(new_and_array_delete) {
  using_array_delete(tell_block(using_new(size())));
  survive();
}
CASE(array_new_and_delete) {
  using_delete(tell_block(using_array_new(size())));
  survive();
}

// Until there is a fault.
CASE(write_on_behind_a_block) {
  void* const block = tell_block(allocating_function(size()));
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) flip(block, static_cast<std::ptrdiff_t>(size()) + i);
}
// Of many slabs those that the block's slab may run into.
CASE(write_on_behind_slabs) {
  constexpr int kBlocks = 2000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  // All others are behind it.
  void* const first = *std::min_element(blocks, blocks + kBlocks, std::less<>{});
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) flip(first, static_cast<std::ptrdiff_t>(size()) + i);
}
// Slabs come and go, with guards and without, and all blocks can be used throughout.
CASE(slabs_come_and_go) {
  constexpr int kBlocks = 3000;
  static char* blocks[kBlocks];
  for (std::size_t round = 0; round < 12; ++round) {
    const std::size_t bytes = std::size_t{24} << round;
    const int count = bytes > 8192 ? kBlocks / 30 : kBlocks;
    for (int i = 0; i < count; ++i) {
      blocks[i] = static_cast<char*>(allocating_function(bytes));
      for (std::size_t at = 0; at < bytes; at += 512) blocks[i][at] = 1;
      blocks[i][bytes - 1] = 1;
    }
    for (int i = 0; i < count; ++i) freeing_function(blocks[i]);
  }
  survive();
}

namespace {

void use_blocks_from(std::size_t least, int steps, std::uint32_t seed) {
  constexpr int kBlocks = 24;
  struct {
    void* block;
    std::size_t bytes;
  } held[kBlocks] = {};
  for (int step = 0; step < steps; ++step) {
    seed = seed * 1'664'525 + 1'013'904'223;
    auto& [block, bytes] = held[(seed >> 8) % kBlocks];
    const std::size_t size = (least << (seed >> 14) % 6) + (seed >> 17) % 30'000;
    switch ((seed >> 24) % 4) {
      case 0:
        block = hidden(std::realloc(block, size));
        break;
      case 1:
        freeing_function(block);
        block = std::aligned_alloc(std::size_t{4096} << (seed >> 28), size / 65536 * 65536);
        block = hidden(block != nullptr ? block : allocating_function(size));
        break;
      case 2:
        freeing_function(block);
        block = hidden(std::calloc(1, size));
        for (std::size_t at = 0; at < size; at += 512) {
          CHECK(static_cast<unsigned char*>(block)[at] == 0, "calloc gives zeros");
        }
        break;
      default:
        freeing_function(block);
        block = allocating_function(size);
    }
    CHECK(block != nullptr, "memory");
    bytes = malloc_usable_size(block);
    use_all_of(block, bytes);
    if (step % 200 == 0) malloc_trim(0);
  }
  for (auto& each : held) freeing_function(each.block);
}
void use_large_blocks(std::uint32_t seed) {
  use_blocks_from(100'000, 1500, seed);
  use_blocks_from(700'000, 60, seed);
}

}  // namespace

// However a large block comes, all of it can be used, and nothing keeps it closed.
CASE(large_blocks_come_and_go) {
  use_large_blocks(1);
  std::thread{use_large_blocks, 2}.join();
  const pid_t child = fork();
  if (child == 0) {
    use_large_blocks(3);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended well");
  use_large_blocks(4);
  survive();
}
// Where the system refuses to close pages, some of the others may have been closed before.
CASE(large_blocks_that_are_locked_in_part) {
  for (const std::size_t bytes : {std::size_t{300'000}, std::size_t{10} << 20}) {
    for (int i = 0; i < 20; ++i) {
      auto* const block = static_cast<char*>(allocating_function(bytes));
      use_all_of(block, bytes);
      const bool is_locked = i < 4 && mlock(block + 65'536, 4096) == 0;
      tell("locked", is_locked ? 1 : 0);
      freeing_function(block);
    }
  }
  survive();
}
// One of many, long after its time in quarantine; perhaps nearly all of it is in memory.
CASE(write_long_after_the_free_of_a_large_block) {
  constexpr int kBlocks = 64;
  const bool is_used = parameter("TEST_USED") != 0;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  if (is_used) std::memset(blocks[kBlocks / 2], 1, size());
  freeing_function(tell_block(blocks[kBlocks / 2]));
  free_many();
  flip(blocks[kBlocks / 2], static_cast<std::ptrdiff_t>(offset()));
}
// The heap keeps those above 4 MiB, once it has a helper that gives them back.
CASE(touch_a_huge_block_long_after_its_free) {
  for (int i = 0; i < 100; ++i) {
    void* const block = allocating_function(size());
    use_all_of(block, size());
    freeing_function(block);
  }
  void* const block = tell_block(allocating_function(size()));
  std::memset(block, 1, size());
  freeing_function(block);
  free_many();
  if (parameter("TEST_AGAIN") != 0) return freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
// Large ones are not what the number of guards is limited for.
CASE(write_on_behind_slabs_after_large_blocks) {
  for (int i = 0; i < 300; ++i) freeing_function(allocating_function(300'000));
  write_on_behind_slabs();
}

OWN_FRAME void overwrite_old_stack() {
  unsigned char old[1 << 15];
  memset(old, 1, sizeof old);
  KEEP_FRAME();
  CHECK(old[parameter("TEST_SIZE") % sizeof old] == 1, "not overwritten");
}

// What only a free block leads to leaks, also where that is kept as it was.
CASE(leaks_behind_a_block_that_is_kept) {
  for (int i = 0; i < 100; ++i) freeing_function(allocating_function(size()));
  CHECK(allod_profile_start(1) == 0, "no profile");
  auto** const holder = static_cast<void**>(allocating_function(size()));
  use_all_of(holder, size());
  for (int i = 1; i <= 20; ++i) holder[i] = allocating_function(1000);
  freeing_function(holder);
  overwrite_old_stack();
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  survive();
}

// Of large blocks one is led to, one leaks, and two have been freed and wait.
CASE(leaks_of_large_blocks_are_looked_for) {
  static void* kept;
  CHECK(allod_profile_start(1) == 0, "no profile");
  kept = allocating_function(size());
  CHECK(allocating_function(size()) != nullptr, "no block");
  freeing_function(allocating_function(size()));
  freeing_function(allocating_function(100));
  static unsigned char overwritten[1 << 16];
  use_all_of(overwritten, sizeof overwritten);
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  freeing_function(kept);
  survive();
}

// A search for leaks reads what guards lie between.
CASE(leaks_are_looked_for) {
  constexpr int kBlocks = 3000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  freeing_function(allocating_function(300'000));
  void* const large = allocating_function(200'000);
  CHECK(allod_profile_start(1) == 0, "no profile");
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  freeing_function(large);
  for (void* block : blocks) freeing_function(block);
  survive();
}
