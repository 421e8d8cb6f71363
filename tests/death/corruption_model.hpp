// What the model of random calls knows: which blocks are in use, with what in them, which are free,
// and which of these wait for sure; and how blocks are asked for and freed.
#pragma once

#include <allod.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "findings.hpp"

extern "C" {
void free_sized(void*, size_t) noexcept;
void free_aligned_sized(void*, size_t, size_t) noexcept;
}

namespace {

// Are there blocks of hardened heaps alone, in a library that is not hardened itself?
bool only_heaps = false;
// Are copies checked?
bool has_copies = false;
// Measures that something is expected of.
bool has_canaries = true, has_neighbours = true, has_zero = true, has_written = true;
bool has_quarantine = true, has_guards = true, has_empty = true, has_origin = true;
bool has_sweep = false;
const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

template <class Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(find_function(name));
}

// --- chance -------------------------------------------------------------------------------------

std::uint64_t random_state;
std::uint64_t random_below(std::uint64_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % bound;
}
bool one_in(std::uint64_t n) { return random_below(n) == 0; }
std::size_t random_size() {
  const std::uint64_t kind = random_below(1000);
  if (kind < 5) return 0;
  if (kind < 700) return 1 + random_below(300);
  if (kind < 950) return 1 + random_below(20'000);
  // Whole pages fill a class now and then.
  if (kind < 998) return one_in(4) ? page + random_below(150) * page : 1 + random_below(600'000);
  return 1 + random_below(6'000'000);
}
// 1: none was asked for.
std::size_t random_alignment() { return one_in(8) ? std::size_t{16} << random_below(10) : 1; }

// --- heaps --------------------------------------------------------------------------------------

const auto heap_new_ex = function<decltype(allod_heap_new_ex)>("allod_heap_new_ex");
const auto heap_delete = function<decltype(allod_heap_delete)>("allod_heap_delete");
const auto heap_destroy = function<decltype(allod_heap_destroy)>("allod_heap_destroy");
const auto heap_malloc = function<decltype(allod_heap_malloc)>("allod_heap_malloc");
const auto heap_calloc = function<decltype(allod_heap_calloc)>("allod_heap_calloc");
const auto heap_realloc = function<decltype(allod_heap_realloc)>("allod_heap_realloc");
const auto heap_aligned = function<decltype(allod_heap_aligned_alloc)>("allod_heap_aligned_alloc");
const auto heap_free = function<decltype(allod_heap_free)>("allod_heap_free");
const auto heap_free_sized = function<decltype(allod_heap_free_sized)>("allod_heap_free_sized");
const auto heap_reallocarray =
    function<decltype(allod_heap_reallocarray)>("allod_heap_reallocarray");
const auto heap_collect = function<decltype(allod_heap_collect)>("allod_heap_collect");
const auto heap_walk = function<decltype(allod_heap_walk)>("allod_heap_walk");
const auto collect = function<decltype(allod_collect)>("allod_collect");
const auto sized = function<decltype(free_sized)>("free_sized");
const auto aligned_sized = function<decltype(free_aligned_sized)>("free_aligned_sized");
const auto usable_size = function<decltype(allod_malloc_usable_size)>("malloc_usable_size");
const auto bounds = function<decltype(allod_bounds)>("allod_bounds");

constexpr std::size_t kHeaps = 3;
allod_heap_t* heaps[kHeaps];

allod_heap_t* new_heap() {
  allod_heap_options_t options{};
  options.struct_size = sizeof options;
  options.hardened = 1;
  allod_heap_t* const heap = heap_new_ex(&options);
  CHECK(heap != nullptr, "no heap");
  return heap;
}
allod_heap_t* random_heap() { return heaps[random_below(kHeaps)]; }

// --- blocks in use ------------------------------------------------------------------------------

enum class Origin : std::uint8_t { c, scalar, array, heap };

struct Live {
  unsigned char* block = nullptr;
  std::size_t size = 0;
  std::size_t alignment = 1;
  Origin origin = Origin::c;
  allod_heap_t* heap = nullptr;  // of a block of a heap that is still there
  bool is_resized = false;
  std::uint64_t seed = 0;  // of what is written there

  // Of a large block, both ends.
  static constexpr std::size_t kEnd = 2048;
  void write() const {
    if (size <= 2 * kEnd) return fill(block, size, seed);
    fill(block, kEnd, seed);
    fill(block + size - kEnd, kEnd, seed + 1);
  }
  void check() const {
    const bool is_whole =
        size <= 2 * kEnd ? holds(block, size, seed)
                         : holds(block, kEnd, seed) && holds(block + size - kEnd, kEnd, seed + 1);
    CHECK(is_whole, "block %p of %zu bytes has changed", static_cast<void*>(block), size);
  }
  // Does anybody know where it ends? In the default library nobody does when its heap is gone.
  [[nodiscard]] bool is_watched() const { return !only_heaps || heap != nullptr; }
  // An address without memory?
  [[nodiscard]] bool is_nothing() const {
    return size == 0 && has_empty && !only_heaps && origin != Origin::heap && alignment == 1;
  }
  // Is there a word behind its bytes? Not behind one that large alignments leave no room for it.
  [[nodiscard]] bool has_canary() const {
    if (!is_watched() || !has_canaries || is_nothing()) return false;
    if (only_heaps || alignment < 4096 || size >= 120 * KIB) return true;
    return size % alignment != 0 && size % alignment <= alignment - 8;
  }
  // Is all of it zero when it is free? A large block cannot be looked at. What realloc moves may
  // get a block that is larger than it has to be.
  [[nodiscard]] bool is_erased() const {
    return has_zero && size <= (is_resized || alignment != 1 ? 20'000 : 100'000);
  }
  // What it weighs in quarantine, at most.
  [[nodiscard]] std::size_t most_weight() const {
    if (size > 20'000) return std::size_t{64} * KIB;
    return alignment == 1 ? (size + 8) * 5 / 4 + 16 : 2 * (size + alignment) + 1100;
  }
};

constexpr std::size_t kRoom = 200'000;
Live live[kRoom];
std::size_t live_count = 0;
std::size_t most_live = 400;

void add(Live entry) {
  CHECK(entry.block != nullptr, "no memory");
  CHECK(is_aligned(entry.block, entry.alignment), "%p", static_cast<void*>(entry.block));
  entry.seed = random_below(1 << 30);
  entry.write();
  live[live_count++] = entry;
}
Live take_out(std::size_t index) {
  const Live entry = live[index];
  live[index] = live[--live_count];
  return entry;
}
bool is_live(const void* address) {
  for (std::size_t i = 0; i < live_count; ++i) {
    if (live[i].block == address) return true;
  }
  return false;
}

// --- what is free -------------------------------------------------------------------------------

// A block waits in the quarantine of the thread that frees it, or of its heap, until that has taken
// so many others, or as many bytes: more where there are few threads.
struct Quarantine {
  static constexpr std::uint64_t kBlocks = 256;
  static constexpr std::uint64_t kBytes = std::uint64_t{64} * KIB;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
};
Quarantine of_main, of_helper, of_heap[kHeaps];

// Others have been freed, nobody knows how many: nothing waits for sure.
void lose_track() {
  for (Quarantine* each : {&of_main, &of_helper}) each->blocks += Quarantine::kBlocks;
  for (Quarantine& each : of_heap) each.blocks += Quarantine::kBlocks;
}

// Those that were freed last but so many; some are in use again.
struct Freed {
  void* block = nullptr;
  Origin origin = Origin::c;
  bool is_nothing = false;
  const Quarantine* quarantine = nullptr;  // null: it may be used again at once
  Quarantine then = {};

  [[nodiscard]] bool waits() const {
    return quarantine != nullptr && quarantine->blocks - then.blocks < Quarantine::kBlocks &&
           quarantine->bytes - then.bytes < Quarantine::kBytes;
  }
};
constexpr std::size_t kRemembered = 64;
Freed remembered[kRemembered];
std::size_t remembered_count = 0;
std::size_t known_freed() { return std::min(remembered_count, kRemembered); }

Quarantine* quarantine_of(const Live& entry, bool is_helpers) {
  if (!has_quarantine || entry.is_nothing()) return nullptr;
  if (!only_heaps) {
    if (entry.heap != nullptr) return nullptr;
    return is_helpers ? &of_helper : &of_main;
  }
  for (std::size_t i = 0; i < kHeaps; ++i) {
    if (heaps[i] == entry.heap) return &of_heap[i];
  }
  return nullptr;
}
// What was freed just now.
Freed note_freed(const Live& entry, bool is_helpers) {
  Freed freed{entry.block, entry.origin, entry.is_nothing()};
  Quarantine* const quarantine = quarantine_of(entry, is_helpers);
  if (quarantine == nullptr) return freed;
  ++quarantine->blocks;
  quarantine->bytes += entry.most_weight();
  // The largest blocks of a heap alone do not wait. When its heap is gone a block may, or not.
  const bool waits = only_heaps ? entry.size <= 3 * MIB : entry.origin != Origin::heap;
  if (!waits) return freed;
  freed.quarantine = quarantine;
  freed.then = *quarantine;
  return freed;
}

// What is handed out does not wait, nor does anything point to it that a sweep would find.
void check_is_free(const void* block) {
  for (std::size_t i = 0; i < known_freed(); ++i) {
    const Freed& freed = remembered[i];
    if (freed.block != block) continue;
    CHECK(!freed.waits(), "%p was in quarantine", block);
    CHECK(!has_sweep || freed.origin == Origin::heap || freed.is_nothing, "%p is pointed to",
          block);
  }
}

// --- malloc -------------------------------------------------------------------------------------

// A divisor of about what was wanted, and the size as its multiple.
std::size_t split(std::size_t* size) {
  const std::size_t count = 1 + random_below(16);
  *size = *size / count * count;
  return count;
}
// Each may change the entry: what was asked for in the end, and whether it is told to be zero.
void* allocate_c(Live& entry, bool* is_cleared) {
  void* block = nullptr;
  if (entry.alignment != 1) {
    switch (random_below(entry.alignment == page ? 5 : 3)) {
      case 0:
        return aligned_alloc(entry.alignment, entry.size);
      case 1:
        return memalign(entry.alignment, entry.size);
      case 2:
        CHECK(posix_memalign(&block, entry.alignment, entry.size) == 0, "posix_memalign");
        return block;
      case 3:
        return valloc(entry.size);
      default:
        entry.size = (entry.size / page + 1) * page;
        return pvalloc(entry.size - random_below(page));
    }
  }
  const std::uint64_t way = random_below(6);
  *is_cleared = way == 2 || way == 3;
  const std::size_t count = way == 3 || way == 5 ? split(&entry.size) : 1;
  switch (way) {
    case 2:
      return calloc(entry.size, 1);
    case 3:
      return calloc(count, entry.size / count);
    case 4:
      return realloc(nullptr, entry.size);
    case 5:
      return reallocarray(nullptr, count, entry.size / count);
    default:
      return malloc(entry.size);
  }
}
void* allocate_by_new(std::size_t size, std::size_t alignment) {
  const std::align_val_t aligned{alignment};
  if (one_in(4)) {
    return alignment == 1 ? ::operator new(size, std::nothrow)
                          : ::operator new(size, aligned, std::nothrow);
  }
  return alignment == 1 ? ::operator new(size) : ::operator new(size, aligned);
}
void* allocate_array(std::size_t size, std::size_t alignment) {
  const std::align_val_t aligned{alignment};
  if (one_in(4)) {
    return alignment == 1 ? ::operator new[](size, std::nothrow)
                          : ::operator new[](size, aligned, std::nothrow);
  }
  return alignment == 1 ? ::operator new[](size) : ::operator new[](size, aligned);
}
void* allocate_in(Live& entry, bool* is_cleared) {
  if (entry.alignment != 1) return heap_aligned(entry.heap, entry.alignment, entry.size);
  switch (random_below(4)) {
    case 0:
      return heap_realloc(entry.heap, nullptr, entry.size);
    case 1: {
      *is_cleared = true;
      const std::size_t count = split(&entry.size);
      return heap_calloc(entry.heap, count, entry.size / count);
    }
    default:
      return heap_malloc(entry.heap, entry.size);
  }
}
// Is what others had left there gone? Not in large blocks of one heap alone.
bool begins_with_zeros(const Live& entry) {
  return has_zero && entry.is_watched() && !(only_heaps && entry.size > 100'000);
}

void allocate() {
  Live entry;
  bool is_cleared = false;
  entry.size = random_size();
  entry.alignment = random_alignment();
  entry.origin = only_heaps ? Origin::heap : static_cast<Origin>(random_below(4));
  if (entry.origin == Origin::heap) entry.heap = random_heap();
  const auto allocated = [&]() -> void* {
    switch (entry.origin) {
      case Origin::c:
        return allocate_c(entry, &is_cleared);
      case Origin::scalar:
        return allocate_by_new(entry.size, entry.alignment);
      case Origin::array:
        return allocate_array(entry.size, entry.alignment);
      case Origin::heap:
        break;
    }
    return allocate_in(entry, &is_cleared);
  };
  entry.block = static_cast<unsigned char*>(hidden(allocated()));
  check_is_free(entry.block);
  CHECK((!is_cleared && !begins_with_zeros(entry)) || is_zero(entry.block, entry.size),
        "%p of %zu bytes is not zero", static_cast<void*>(entry.block), entry.size);
  add(entry);
}

void* reallocated(allod_heap_t* target, void* block, std::size_t* size) {
  if (!one_in(3)) {
    return target != nullptr ? heap_realloc(target, block, *size) : realloc(block, *size);
  }
  *size += 16;
  const std::size_t count = split(size);
  return target != nullptr ? heap_reallocarray(target, block, count, *size / count)
                           : reallocarray(block, count, *size / count);
}
void resize(std::size_t index) {
  Live entry = live[index];
  if (entry.origin == Origin::scalar || entry.origin == Origin::array) return;
  entry.check();
  std::size_t size = 1 + random_size();
  const bool is_cleared = begins_with_zeros(entry);
  // What a heap that is gone has left goes into another one: a block of no heap could take the
  // place of what was freed in one, and nobody would watch that.
  const bool changes = entry.heap != nullptr ? one_in(2) : only_heaps;
  allod_heap_t* const target = changes ? random_heap() : nullptr;
  void* const moved = reallocated(target, hidden(entry.block), &size);
  CHECK(moved != nullptr, "realloc");
  if (moved != entry.block) check_is_free(moved);
  lose_track();
  const std::size_t kept = entry.size < size ? entry.size : size;
  const std::size_t known = kept < Live::kEnd ? kept : Live::kEnd;
  CHECK(holds(moved, known, entry.seed), "what realloc has kept");
  if (target != nullptr) entry.heap = target;
  if (entry.size < size && is_cleared && !(only_heaps && size > 100'000)) {
    CHECK(is_zero(static_cast<unsigned char*>(moved) + entry.size, size - entry.size),
          "%p has grown from %zu to %zu bytes that are not zero", moved, entry.size, size);
  }
  entry.block = static_cast<unsigned char*>(moved);
  entry.size = size;
  entry.alignment = 1;
  entry.is_resized = true;
  static_cast<void>(take_out(index));
  add(entry);
}

// --- free ---------------------------------------------------------------------------------------

void release_c(const Live& entry) {
  if (!one_in(4)) return free(entry.block);
  entry.alignment == 1 ? sized(entry.block, entry.size)
                       : aligned_sized(entry.block, entry.alignment, entry.size);
}
void release_by_delete(const Live& entry) {
  const std::align_val_t alignment{entry.alignment};
  if (entry.alignment == 1) {
    one_in(2) ? ::operator delete(entry.block) : ::operator delete(entry.block, entry.size);
  } else {
    one_in(2) ? ::operator delete(entry.block, alignment)
              : ::operator delete(entry.block, entry.size, alignment);
  }
}
void release_array(const Live& entry) {
  const std::align_val_t alignment{entry.alignment};
  if (entry.alignment == 1) {
    one_in(2) ? ::operator delete[](entry.block) : ::operator delete[](entry.block, entry.size);
  } else {
    one_in(2) ? ::operator delete[](entry.block, alignment)
              : ::operator delete[](entry.block, entry.size, alignment);
  }
}
void release_here(const Live& entry) {
  switch (entry.origin) {
    case Origin::c:
      return release_c(entry);
    case Origin::scalar:
      return release_by_delete(entry);
    case Origin::array:
      return release_array(entry);
    case Origin::heap:
      break;
  }
  if (entry.heap == nullptr || one_in(2)) return free(entry.block);
  one_in(2) ? heap_free(entry.heap, entry.block)
            : heap_free_sized(entry.heap, entry.block, entry.size);
}

// A second thread, which frees what it is told to.
sem_t wanted, done;
Live order;
bool has_helper = false;
void* helper(void*) {
  for (;;) {
    while (sem_wait(&wanted) != 0) {
    }
    if (order.block == nullptr) return nullptr;
    release_here(order);
    sem_post(&done);
  }
}
Freed release(const Live& entry) {
  const bool is_helpers = has_helper && one_in(3);
  if (is_helpers) {
    order = entry;
    sem_post(&wanted);
    while (sem_wait(&done) != 0) {
    }
  } else {
    release_here(entry);
  }
  return note_freed(entry, is_helpers);
}

void release_and_remember(const Live& entry) {
  entry.check();
  const Freed freed = release(entry);
  if (freed.waits() && entry.is_erased()) {
    CHECK(is_zero(entry.block, entry.size), "%p of %zu bytes is free and not zero",
          static_cast<void*>(entry.block), entry.size);
  }
  if (entry.is_watched()) remembered[remembered_count++ % kRemembered] = freed;
}
// Null: none that is free still.
const Freed* random_freed() {
  if (remembered_count == 0) return nullptr;
  const Freed& freed = remembered[random_below(known_freed())];
  return is_live(freed.block) ? nullptr : &freed;
}

}  // namespace
