// Random calls with defects among them, and a model that says which of them must be found: all
// that are made, each at its time, and nothing else.
//
//   corruption SEED OPERATIONS [WORD]...
//
// with the hardened library. Words: those of ALLOD_HARDENED, so that nothing is expected of a
// measure that is left out; `heaps`: in hardened heaps of the default library; a number: so many
// blocks in use, at most.
#include <allod.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "findings.hpp"

extern "C" {
void free_sized(void*, size_t) noexcept;
void free_aligned_sized(void*, size_t, size_t) noexcept;
}

namespace {

using allod::test::Findings;

Findings findings;
// Are there blocks of hardened heaps alone, in a library that is not hardened itself?
bool only_heaps = false;
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
  if (kind < 998) return 1 + random_below(600'000);
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
// so many others, or as many bytes.
struct Quarantine {
  static constexpr std::uint64_t kBlocks = 64;
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

// --- defects ------------------------------------------------------------------------------------

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
// TODO-LIB: by realloc, too, which reports what new has given and must not give a copy then.
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
  if (only_heaps || !entry.is_watched()) return;
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
    memset(end, 0, 8);
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
  const auto stride = [&](std::size_t i) {
    return static_cast<std::size_t>(blocks[i + 1] - blocks[i]);
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
  for (int i = 0; i < 130; ++i) {
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

// --- faults -------------------------------------------------------------------------------------

// Does a guard need no mapping? Otherwise not every block has one (Linux before 6.13).
bool has_light_guards() {
  constexpr int kInstall = 102;  // MADV_GUARD_INSTALL
  void* const memory = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool has = memory != MAP_FAILED && madvise(memory, page, kInstall) == 0;
  munmap(memory, page);
  return has;
}

// A child touches it, perhaps after its free, and dies of that, with a report.
void touch(unsigned char* block, volatile unsigned char* address, bool is_freed, Kinds kinds) {
  const bool is_write = one_in(2);
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    if (is_freed) free(block);
    if (is_write) {
      *address = 1;
    } else {
      static_cast<void>(*address);
    }
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%s of %p in block %p: status %#x",
        *kinds.begin(), const_cast<unsigned char*>(address), static_cast<void*>(block),
        static_cast<unsigned>(status));
  findings.expect(kinds, const_cast<unsigned char*>(address));
}
void touch_nothing() {
  auto* const block = static_cast<unsigned char*>(hidden(malloc(0)));
  touch(block, block, false, {"access_to_nothing"});
  free(block);
}
void touch_large(std::size_t index) {
  static const bool is_behind_all = has_light_guards();
  const std::size_t size = 140 * KIB + random_below(3 * MIB - 140 * KIB);
  auto* const block = static_cast<unsigned char*>(hidden(malloc(size)));
  if (one_in(2)) memset(block, 1, size);
  block[0] = block[size - 1] = 1;
  // The library closes what it has erased.
  if (has_zero) touch(block, block + random_below(size), true, {"access_after_free"});
  const Live entry = live[index];
  const bool is_live = entry.size >= 128 * KIB && entry.origin != Origin::heap;
  const std::uintptr_t end = is_live ? reinterpret_cast<std::uintptr_t>(entry.block + entry.size)
                                     : reinterpret_cast<std::uintptr_t>(block + size);
  if (is_behind_all && !is_behind_unknown) {
    const std::uintptr_t guard = (end + 8 + page - 1) / page * page;
    touch(block, reinterpret_cast<unsigned char*>(guard + random_below(page)), false,
          {"access_past_the_end"});
  }
  free(block);
  lose_track();
}
void fault(std::size_t index) {
  if (only_heaps) return;
  if (one_in(2)) {
    if (has_empty) touch_nothing();
  } else if (has_guards) {
    touch_large(index);
  }
}

// --- all of it ----------------------------------------------------------------------------------

void make_defect(std::size_t index) {
  // What takes long comes seldom.
  switch (random_below(100)) {
    case 0:
      return fault(index);
    case 1:
    case 2:
      return write_after_in_thread(index);
    case 3:
    case 4:
      return free_at_once(index);
    case 5:
    case 6:
      return write_before();
    default:
      break;
  }
  switch (random_below(9)) {
    case 0:
      return free_twice();
    case 1:
      return resize_freed();
    case 2:
      return free_inside(live[index]);
    case 3:
      return free_foreign();
    case 4:
      return free_wrongly(live[index]);
    case 5:
      return free_to_wrong_heap(live[index]);
    case 6:
      return free_with_wrong_size(live[index]);
    case 7:
      return write_behind(index);
    default:
      return write_after(index);
  }
}
void step() {
  if (one_in(5000)) return change_heap();
  const std::uint64_t choice = random_below(100);
  if (live_count == 0 || (choice < 46 && live_count < most_live)) return allocate();
  const std::size_t index = random_below(live_count);
  if (one_in(500)) return call_others(index);
  if (choice < 83) {
    release_and_remember(take_out(index));
  } else if (choice < 88) {
    resize(index);
  } else if (choice < 92) {
    ask(live[index]);
  } else {
    make_defect(index);
  }
}
void make_steps(unsigned long operations) {
  for (unsigned long i = 0; i < operations; ++i) {
    step();
    findings.expect_nothing();
  }
}

const auto set_option = function<decltype(allod_option_set)>("allod_option_set");

// A child has the heap of its parent, and no other thread.
void go_on_in_child() {
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    has_helper = false;
    findings.start(set_option);
    make_steps(2000);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
}

void take_word(const char* word) {
  // Null: nothing is expected of it.
  static constexpr struct {
    const char* name;
    bool* is_on;
  } kMeasures[] = {{"canary", &has_canaries}, {"neighbours", &has_neighbours},
                   {"zero", &has_zero},       {"written", &has_written},
                   {"guards", &has_guards},   {"quarantine", &has_quarantine},
                   {"empty", &has_empty},     {"origin", &has_origin},
                   {"sweep", &has_sweep},     {"history", nullptr},
                   {"shuffle", nullptr},      {"addresses", nullptr},
                   {"positions", nullptr}};
  if (strcmp(word, "heaps") == 0) {
    only_heaps = true;
    return;
  }
  if (strcmp(word, "all") == 0) return;
  if (*word >= '1' && *word <= '9') {
    most_live = strtoul(word, nullptr, 10);
    CHECK(most_live <= kRoom, "%zu blocks are too many", most_live);
    return;
  }
  const bool is_left_out = *word == '-';
  for (const auto& measure : kMeasures) {
    if (strcmp(measure.name, word + is_left_out) != 0) continue;
    if (measure.is_on != nullptr) *measure.is_on = !is_left_out;
    return;
  }
  CHECK(false, "what is %s?", word);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 3, "usage: corruption SEED OPERATIONS [WORD]...");
  random_state = strtoull(argv[1], nullptr, 0) * 2 + 1;
  const unsigned long operations = strtoul(argv[2], nullptr, 0);
  const std::size_t usual = most_live;
  for (int i = 3; i < argc; ++i) take_word(argv[i]);
  findings.start(set_option);
  for (allod_heap_t*& heap : heaps) heap = new_heap();
  // It takes long to become more by chance.
  if (most_live > usual) {
    while (live_count < most_live - most_live / 8) allocate();
  }
  pthread_t thread;
  sem_init(&wanted, 0, 0);
  sem_init(&done, 0, 0);
  CHECK(pthread_create(&thread, nullptr, helper, nullptr) == 0, "pthread_create");
  has_helper = true;
  // What libc allocates for a thread it keeps for the next one, so that it never takes what was
  // freed here.
  on_a_thread([](void*) -> void* { return nullptr; }, nullptr);
  make_steps(operations / 2);
  go_on_in_child();
  make_steps(operations - operations / 2);
  while (live_count > 0) release_and_remember(take_out(live_count - 1));
  order.block = nullptr;
  sem_post(&wanted);
  pthread_join(thread, nullptr);
  for (allod_heap_t* heap : heaps) heap_destroy(heap);
  findings.expect_nothing();
  printf("%lu operations, %lu defects, all found\n", operations, findings.count());
  return 0;
}
