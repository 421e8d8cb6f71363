// The defects that the model of random calls makes, by one thread and by several, each with the
// report that must come.
#pragma once

#include <allod.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "corruption_calls.hpp"

namespace {

using Kinds = std::initializer_list<const char*>;
// Its slab may have gone since, and others, or nobody, may be there.
const Kinds kNotInUse = {"double_free", "invalid_free", "foreign_free"};
const Kinds kNotInUseHere = {"double_free", "invalid_free", "foreign_free", "wrong_heap"};
const Kinds kDoubleFree = {"double_free"};
const Kinds kDoubleFreeHere = {"double_free", "wrong_heap"};
const Kinds kInside = {"invalid_free"};
const Kinds kInsideHere = {"invalid_free", "wrong_heap"};
const Kinds kForeign = {"foreign_free"};
const Kinds kForeignHere = {"foreign_free", "wrong_heap"};

// Frees what is not to be freed, by any function, and says by what: one of a heap may say that the
// address is not its own.
enum class By : std::uint8_t { free, realloc, heap, heap_realloc };
bool is_heaps(By by) { return by == By::heap || by == By::heap_realloc; }
By free_by_any(void* address) {
  address = hidden(address);
  const std::size_t size = random_size();
  const std::align_val_t alignment{64};
  switch (random_below(13)) {
    case 0:
      ::operator delete(address);
      break;
    case 1:
      ::operator delete[](address);
      break;
    case 2:
      ::operator delete(address, size);
      break;
    case 3:
      ::operator delete[](address, size);
      break;
    case 4:
      ::operator delete(address, alignment);
      break;
    case 5:
      ::operator delete[](address, size, alignment);
      break;
    case 6:
      sized(address, size);
      break;
    case 7:
      aligned_sized(address, 64, size);
      break;
    case 8:
      CHECK(realloc(address, 1 + size) == nullptr, "realloc of %p", address);
      return By::realloc;
    case 9:
      heap_free(random_heap(), address);
      return By::heap;
    case 10:
      heap_free_sized(random_heap(), address, size);
      return By::heap;
    case 11:
      CHECK(heap_realloc(random_heap(), address, 1 + size) == nullptr, "realloc of %p", address);
      return By::heap_realloc;
    default:
      free(address);
  }
  return By::free;
}

// What waits is known to be free.
void expect_not_in_use(const Freed& freed, By by) {
  if (freed.waits()) {
    findings.expect(is_heaps(by) ? kDoubleFreeHere : kDoubleFree, freed.block);
  } else {
    findings.expect(is_heaps(by) ? kNotInUseHere : kNotInUse, freed.block);
  }
}
void free_twice() {
  const Freed* const freed = random_freed();
  if (freed == nullptr) return;
  expect_not_in_use(*freed, free_by_any(freed->block));
}
void resize_freed() {
  const Freed* const freed = random_freed();
  if (freed == nullptr) return;
  void* const block = hidden(freed->block);
  CHECK(realloc(block, 1 + random_size()) == nullptr, "realloc of %p", block);
  expect_not_in_use(*freed, By::realloc);
}
void free_inside(const Live& entry) {
  if (entry.size < 2 || !entry.is_watched()) return;
  unsigned char* const address = entry.block + 1 + random_below(entry.size - 1);
  findings.expect(is_heaps(free_by_any(address)) ? kInsideHere : kInside, address);
}
void free_foreign() {
  static char fixed[64];
  static auto* const mapped = static_cast<char*>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  int local = 0;
  const auto at = [](std::uint64_t number) { return reinterpret_cast<void*>(number); };
  void* address = &local;
  bool is_any = false;
  switch (random_below(only_heaps ? 3 : 5)) {
    case 0:
      break;
    case 1:
      address = fixed + random_below(sizeof fixed);
      break;
    case 2:
      address = mapped + random_below(1 << 20);
      break;
    case 3:
      is_any = true;
      address = at(1 + random_below((std::uint64_t{1} << 47) - 1));
      break;
    default:
      address =
          at(random_below(std::uint64_t{1} << 63) | std::uint64_t{1} << (47 + random_below(17)));
  }
  if (is_live(address)) return;
  // The default library says nothing of these.
  if (only_heaps) return one_in(2) ? free(hidden(address)) : ::operator delete(hidden(address));
  const bool is_here = is_heaps(free_by_any(address));
  if (is_any) {
    findings.expect(is_here ? kNotInUseHere : kNotInUse, address);
  } else {
    findings.expect(is_here ? kForeignHere : kForeign, address);
  }
}

void delete_by_any(const Live& entry, bool is_array) {
  void* const block = hidden(entry.block);
  const std::align_val_t alignment{entry.alignment == 1 ? 64 : entry.alignment};
  switch (random_below(4)) {
    case 0:
      return is_array ? ::operator delete[](block) : ::operator delete(block);
    case 1:
      return is_array ? ::operator delete[](block, entry.size)
                      : ::operator delete(block, entry.size);
    case 2:
      return is_array ? ::operator delete[](block, alignment) : ::operator delete(block, alignment);
    default:
      return is_array ? ::operator delete[](block, entry.size, alignment)
                      : ::operator delete(block, entry.size, alignment);
  }
}
void free_by_c(const Live& entry) {
  void* const block = hidden(entry.block);
  switch (random_below(4)) {
    case 0:
      return free(block);
    case 1:
      return sized(block, entry.size);
    case 2:
      CHECK(realloc(block, 1 + random_size()) == nullptr, "realloc of %p", block);
      return;
    default:
      return aligned_sized(block, entry.alignment, entry.size);
  }
}
// By another family than it came from, but with the right size.
void free_wrongly(const Live& entry) {
  // Blocks of heaps belong to no family.
  if (!has_origin || entry.origin == Origin::heap) return;
  const bool is_array = one_in(2);
  switch (entry.origin) {
    case Origin::scalar:
      is_array ? delete_by_any(entry, true) : free_by_c(entry);
      break;
    case Origin::array:
      is_array ? delete_by_any(entry, false) : free_by_c(entry);
      break;
    default:
      delete_by_any(entry, is_array);
  }
  findings.expect({"wrong_function"}, entry.block);
}
void free_to_wrong_heap(const Live& entry) {
  allod_heap_t* const wrong = random_heap();
  if (entry.heap == wrong || !entry.is_watched()) return;
  one_in(2) ? heap_free(wrong, entry.block) : heap_free_sized(wrong, entry.block, entry.size);
  findings.expect({"wrong_heap"}, entry.block);
}
std::size_t wrong_size_for(std::size_t size) {
  switch (random_below(6)) {
    case 0:
      return size + 1;
    case 1:
      return size + 8;
    case 2:
      return size != 0 ? size - 1 : 1;
    case 3:
      return size != 0 ? random_below(size) : 16;
    case 4:
      return size != 0 ? size * (2 + random_below(999)) : 24;
    default:
      // SIZE_MAX itself is taken for a size that nobody knows.
      return SIZE_MAX - 1 - random_below(5000);
  }
}
void free_with_wrong_size(const Live& entry) {
  if (only_heaps || !has_origin || !entry.is_watched()) return;
  const std::size_t claimed = wrong_size_for(entry.size);
  const std::align_val_t alignment{entry.alignment};
  const bool is_aligned = entry.alignment != 1;
  void* const block = hidden(entry.block);
  switch (entry.origin) {
    case Origin::c:
      is_aligned ? aligned_sized(block, entry.alignment, claimed) : sized(block, claimed);
      break;
    case Origin::scalar:
      is_aligned ? ::operator delete(block, claimed, alignment) : ::operator delete(block, claimed);
      break;
    case Origin::array:
      is_aligned ? ::operator delete[](block, claimed, alignment)
                 : ::operator delete[](block, claimed);
      break;
    case Origin::heap:
      entry.heap != nullptr ? heap_free_sized(entry.heap, block, claimed) : sized(block, claimed);
  }
  findings.expect({"size_mismatch"}, entry.block);
}

void write_behind(std::size_t index) {
  const Live entry = live[index];
  if (!entry.has_canary()) return;
  unsigned char* const end = entry.block + entry.size;
  bool has_changed = false;
  // In a heap alone, what is zero from end to end is taken for free by all but free itself.
  if (one_in(4) && !(only_heaps && is_zero(entry.block, entry.size))) {
    has_changed = !is_zero(end, 8);
    for (std::size_t i = 0; i < 8; ++i) end[i] = 0;
  }
  if (!has_changed) end[random_below(8)] ^= static_cast<unsigned char>(1 + random_below(255));
  if (one_in(4)) {
    usable_size(entry.block);
    findings.expect({"overflow"}, entry.block);
  }
  static_cast<void>(take_out(index));
  const bool is_cs = entry.origin == Origin::c || entry.origin == Origin::heap;
  if (is_cs && one_in(4)) {
    // A block of a hardened heap that moves is freed besides.
    void* const moved = realloc(hidden(entry.block), 1 + random_size());
    findings.expect({"overflow"}, entry.block, 2);
    lose_track();
    return free(moved);
  }
  static_cast<void>(release(entry));
  findings.expect({"overflow"}, entry.block);
}

// The end of the block before is looked at, too.
void write_before() {
  if (!has_canaries || !has_neighbours) return;
  constexpr std::size_t kBlocks = 96;
  unsigned char* blocks[kBlocks];
  const std::size_t size = 1 + random_below(1000);
  allod_heap_t* const heap = only_heaps || one_in(3) ? random_heap() : nullptr;
  for (unsigned char*& block : blocks) {
    block = static_cast<unsigned char*>(
        hidden(heap != nullptr ? heap_malloc(heap, size) : malloc(size)));
    check_is_free(block);
  }
  std::sort(blocks, blocks + kBlocks);
  std::size_t first = 0;
  // Only within a slab, here a slice: in huge pages the next one may begin at once, without a
  // guard.
  const auto stride = [&](std::size_t i) {
    const auto at = [&](std::size_t block) {
      return reinterpret_cast<std::uintptr_t>(blocks[block]);
    };
    constexpr std::size_t kSlice = std::size_t{64} << 10;
    return at(i) / kSlice == at(i + 1) / kSlice ? at(i + 1) - at(i) : SIZE_MAX;
  };
  for (std::size_t i = 1; i + 1 < kBlocks; ++i) {
    if (stride(i) < stride(first) || (stride(i) == stride(first) && one_in(8))) first = i;
  }
  // There may be none beside each other: no class is that much larger than what was asked for. In a
  // heap alone, so much of what is spare is looked at.
  const std::size_t sealed = size + 8;
  std::size_t most = std::min(sealed + sealed / 8 + 15, 2 * sealed - 1);
  if (only_heaps) most = std::min(most, size + 64);
  if (stride(first) >= sealed && stride(first) <= most) {
    unsigned char* const byte = blocks[first + 1] - 1 - random_below(8);
    const unsigned char before = *byte;
    *byte ^= static_cast<unsigned char>(1 + random_below(255));
    free(blocks[first + 1]);
    blocks[first + 1] = nullptr;
    findings.expect({"overflow"}, blocks[first]);
    *byte = before;
  }
  for (unsigned char* block : blocks) free(block);
  lose_track();
}

// Is it seen when it leaves the quarantine that it was written to?
bool is_looked_at(const Live& entry) {
  if (entry.size == 0 || !entry.is_erased() || !has_written || !has_quarantine) return false;
  // In the hardened library, blocks of heaps do not wait.
  return only_heaps ? entry.heap != nullptr : entry.origin != Origin::heap;
}
void write_after(std::size_t index) {
  const Live entry = live[index];
  if (!is_looked_at(entry)) return;
  static_cast<void>(take_out(index));
  release_here(entry);
  unsigned char* const address = entry.block + random_below(entry.size);
  *address ^= 1;
  // Until it has left the quarantine.
  for (int i = 0; i < 520; ++i) {
    free(hidden(only_heaps ? heap_malloc(entry.heap, 40) : malloc(40)));
  }
  lose_track();
  // Without canaries, the end of a block may be a neighbour's to look at, too.
  findings.expect({"write_after_free"}, address, has_canaries ? 1 : 2);
}

// --- other threads ------------------------------------------------------------------------------

void on_a_thread(void* (*function)(void*), void* argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, function, argument) == 0, "pthread_create");
  pthread_join(thread, nullptr);
}
// What a thread has in quarantine is looked at when it ends.
struct Written {
  Live entry;
  unsigned char* address;
};
void* free_and_write(void* argument) {
  const Written& written = *static_cast<Written*>(argument);
  release_here(written.entry);
  *written.address ^= 1;
  return nullptr;
}
void write_after_in_thread(std::size_t index) {
  Written written{live[index], nullptr};
  if (only_heaps || !is_looked_at(written.entry)) return;
  static_cast<void>(take_out(index));
  written.address = written.entry.block + random_below(written.entry.size);
  on_a_thread(&free_and_write, &written);
  lose_track();
  findings.expect({"write_after_free"}, written.address, has_canaries ? 1 : 2);
}

// Two threads free the same block at the same time.
std::atomic<int> racing;
void release_at_once(const Live& entry) {
  racing.fetch_add(1);
  while (racing.load() < 2) sched_yield();
  switch (entry.origin) {
    case Origin::scalar:
      return ::operator delete(entry.block);
    case Origin::array:
      return ::operator delete[](entry.block);
    default:
      return free(entry.block);
  }
}
void* race(void* argument) {
  release_at_once(*static_cast<const Live*>(argument));
  return nullptr;
}
void free_at_once(std::size_t index) {
  Live entry = live[index];
  if (!entry.is_watched()) return;
  static_cast<void>(take_out(index));
  racing.store(0);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, &race, &entry) == 0, "pthread_create");
  release_at_once(entry);
  pthread_join(thread, nullptr);
  // What is freed while the other thread has the heap's lock is looked at later.
  if (only_heaps) heap_collect(entry.heap);
  lose_track();
  findings.expect(kDoubleFree, entry.block);
}

}  // namespace
