// What the model of random calls asks of a heap that must have no effect, and of which nothing is
// reported.
#pragma once

#include <allod.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "corruption_model.hpp"

namespace {

allod::test::Findings findings;

// --- what is asked ------------------------------------------------------------------------------

void ask(const Live& entry) {
  if (!entry.is_watched()) return;
  CHECK(usable_size(entry.block) == entry.size, "%p of %zu bytes", static_cast<void*>(entry.block),
        entry.size);
  if (entry.size == 0) return;
  void* start = nullptr;
  std::size_t size = 0;
  const int is_found = bounds(entry.block + random_below(entry.size), &start, &size);
  CHECK(is_found == 1 && start == entry.block && size == entry.size, "bounds of %p: %p, %zu bytes",
        static_cast<void*>(entry.block), start, size);
}

// A large block of a heap that was deleted has no guard until its slab goes.
bool is_behind_unknown = false;

// Another heap takes the place of one: what it had is gone, or belongs to nobody.
void change_heap() {
  allod_heap_t*& heap = heaps[random_below(kHeaps)];
  const bool destroyed = one_in(2);
  for (std::size_t i = 0; i < live_count;) {
    if (live[i].heap != heap) {
      ++i;
    } else if (destroyed) {
      static_cast<void>(take_out(i));
    } else {
      is_behind_unknown |= live[i].size >= 100'000;
      live[i++].heap = nullptr;
    }
  }
  destroyed ? heap_destroy(heap) : static_cast<void>(heap_delete(heap));
  heap = new_heap();
  lose_track();
  // Nobody watches any more what was freed there.
  if (only_heaps) remembered_count = 0;
}

// Every block of a heap is met, with its size, and nothing else.
struct Met {
  void* block;
  std::size_t size;
  bool operator<(const Met& other) const { return block < other.block; }
};
Met met[kRoom];
std::size_t met_count = 0;
int meet(void* block, std::size_t size, void*) {
  CHECK(met_count < kRoom, "more blocks than there can be");
  met[met_count++] = {block, size};
  return 0;
}
void walk(allod_heap_t* heap) {
  met_count = 0;
  CHECK(heap_walk(heap, &meet, nullptr) == 0, "the walk was stopped");
  std::sort(met, met + met_count);
  std::size_t count = 0;
  for (std::size_t i = 0; i < live_count; ++i) {
    if (live[i].heap != heap) continue;
    ++count;
    const Met block{live[i].block, live[i].size};
    const Met* const found = std::lower_bound(met, met + met_count, block);
    CHECK(found != met + met_count && found->block == block.block, "%p was not met", block.block);
    CHECK(!live[i].is_watched() || found->size == block.size, "%p of %zu bytes has %zu",
          block.block, block.size, found->size);
  }
  CHECK(count == met_count, "%zu blocks are in use, and %zu were met", count, met_count);
}

// Nothing is that large.
template <class Call>
void expect_refusal(const char* name, Call call) {
  errno = 0;
  const void* const block = hidden(call());
  CHECK(block == nullptr && errno == ENOMEM, "%s gave %p, errno %d", name, block, errno);
}
void ask_for_too_much(std::size_t index) {
  const std::uint64_t less = random_below(1 << 20);
  const std::size_t size = hidden_size((one_in(2) ? SIZE_MAX : PTRDIFF_MAX) - less);
  // Times 16 this is more than can be counted.
  const std::size_t count = hidden_size(SIZE_MAX / 16 + 2 + less);
  allod_heap_t* const heap = random_heap();
  void* const block =
      live_count == 0 || live[index].origin == Origin::scalar || live[index].origin == Origin::array
          ? nullptr
          : live[index].block;
  expect_refusal("malloc", [&] { return malloc(size); });
  expect_refusal("calloc", [&] { return calloc(one_in(2) ? count : size / 16, 16); });
  expect_refusal("realloc", [&] { return realloc(hidden(block), size); });
  expect_refusal("reallocarray", [&] { return reallocarray(hidden(block), count, 16); });
  // Looks like about the size that the block has, to whoever counts slices in 32 bits.
  const std::size_t wrapped = (std::size_t{1} << (48 + random_below(15))) +
                              (block != nullptr ? live[index].size : 0) + random_below(70'000);
  expect_refusal("realloc", [&] { return realloc(hidden(block), wrapped); });
  expect_refusal("aligned_alloc", [&] { return aligned_alloc(64, size); });
  expect_refusal("memalign", [&] { return memalign(4096, size); });
  expect_refusal("valloc", [&] { return valloc(size); });
  expect_refusal("pvalloc", [&] { return pvalloc(size); });
  expect_refusal("heap_malloc", [&] { return heap_malloc(heap, size); });
  expect_refusal("heap_calloc", [&] { return heap_calloc(heap, count, 16); });
  expect_refusal("heap_aligned_alloc", [&] { return heap_aligned(heap, 64, size); });
  if (!only_heaps || block == nullptr || live[index].heap != nullptr) {
    expect_refusal("heap_realloc", [&] { return heap_realloc(heap, hidden(block), size); });
    expect_refusal("heap_realloc", [&] { return heap_realloc(heap, hidden(block), wrapped); });
    expect_refusal("heap_reallocarray",
                   [&] { return heap_reallocarray(heap, hidden(block), count, 16); });
  }
  void* aligned = nullptr;
  CHECK(posix_memalign(&aligned, 64, size) == ENOMEM, "posix_memalign");
  CHECK(hidden(::operator new(size, std::nothrow)) == nullptr, "new");
  CHECK(hidden(::operator new[](size, std::nothrow)) == nullptr, "new[]");
  const std::align_val_t alignment{64};
  CHECK(hidden(::operator new(size, alignment, std::nothrow)) == nullptr, "aligned new");
  if (block != nullptr) live[index].check();
  lose_track();
}
void free_nothing() {
  const auto none = [] { return hidden(nullptr); };
  free(none());
  ::operator delete(none());
  ::operator delete[](none());
  ::operator delete(none(), random_size());
  ::operator delete[](none(), std::align_val_t{64});
  sized(none(), random_size());
  aligned_sized(none(), 64, random_size());
  heap_free(random_heap(), none());
  heap_free_sized(random_heap(), none(), random_size());
}
void call_others(std::size_t index) {
  switch (random_below(6)) {
    case 0:
      return free_nothing();
    case 1:
      return ask_for_too_much(index);
    case 2:
      malloc_trim(0);
      return lose_track();
    case 3:
      collect(one_in(2) ? 1 : 0);
      return lose_track();
    case 4:
      heap_collect(random_heap());
      return lose_track();
    default:
      return walk(random_heap());
  }
}

}  // namespace
