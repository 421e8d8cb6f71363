// Random calls with defects among them, and a model that says which of them must be found: all
// that are made, each at its time, and nothing else.
//
//   corruption SEED OPERATIONS [WORD]...
//
// with the hardened library. Words: those of ALLOD_HARDENED, so that nothing is expected of a
// measure that is left out; `heaps`: in hardened heaps of the default library; `copies`: with the
// checked copies in front of it; a number: so many blocks in use, at most.
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

#include "corruption_model.hpp"
#include "findings.hpp"

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
// From the first page without a byte of a large block on: how far no other block begins, at least.
std::uintptr_t guard_length(std::uintptr_t guard, std::size_t size) {
  // Larger ones share their slices with none.
  constexpr std::uintptr_t kSlice = 64 * KIB;
  return size > 4 * MIB ? (guard / kSlice + 1) * kSlice - guard : page;
}
void touch_large(std::size_t index) {
  static const bool is_behind_all = has_light_guards();
  const std::size_t size = 140 * KIB + random_below(5 * MIB - 140 * KIB);
  Live local;
  local.block = static_cast<unsigned char*>(hidden(malloc(size)));
  local.size = size;
  unsigned char* const block = local.block;
  if (one_in(2)) memset(block, 1, size);
  block[0] = block[size - 1] = 1;
  // The library closes what it has erased, until somebody else may have it.
  if (has_zero && has_quarantine) {
    touch(block, block + random_below(size), true, {"access_after_free"});
  }
  const Live& entry = live[index];
  const bool is_large = entry.size >= 128 * KIB && entry.origin != Origin::heap;
  const Live& touched = is_large ? entry : local;
  if (is_behind_all && !is_behind_unknown) {
    const auto end = reinterpret_cast<std::uintptr_t>(touched.block + touched.size);
    const std::uintptr_t guard = (end + 8 + page - 1) / page * page;
    const std::uintptr_t at = guard + random_below(guard_length(guard, touched.size));
    touch(block, reinterpret_cast<unsigned char*>(at), false, {"access_past_the_end"});
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

// --- checked copies -----------------------------------------------------------------------------

constexpr std::size_t kElsewhere = 8192;
char elsewhere[kElsewhere];

// So many bytes, and how many of a text: the zero behind it is one of them.
void write_by_any(char* to, std::size_t bytes) {
  memset(elsewhere, 'a', bytes);
  elsewhere[bytes - 1] = '\0';
  const std::size_t count = hidden_size(bytes);
  const char* const text = static_cast<const char*>(hidden(elsewhere));
  switch (random_below(9)) {
    case 0:
      memcpy(to, text, count);
      return;
    case 1:
      memmove(to, text, count);
      return;
    case 2:
      CHECK(hidden(mempcpy(to, text, count)) == to + count, "mempcpy");
      return;
    case 3:
      memset(to, 'a', count);
      return;
    case 4:
      strcpy(to, text);
      return;
    case 5:
      hidden(stpcpy(to, text));
      return;
    case 6:
      strncpy(to, text, count);
      return;
    case 7:
      *to = '\0';
      strcat(to, text);
      return;
    default:
      *to = '\0';
      strncat(to, text, count - 1);
  }
}
void read_by_any(char* from, std::size_t bytes) {
  const std::size_t count = hidden_size(bytes);
  char* const to = static_cast<char*>(hidden(elsewhere));
  switch (random_below(5)) {
    case 0:
      memcpy(to, from, count);
      return;
    case 1:
      memmove(to, from, count);
      return;
    case 2:
      strcpy(to, from);
      return;
    case 3:
      strncpy(to, from, count);
      return;
    default:
      *to = '\0';
      strncat(to, from, count);
  }
}
// As much as there is room for is copied, and nothing behind it is touched.
void copy_past_end(const Live& entry) {
  if (!has_copies || !entry.is_watched() || entry.size == 0) return;
  const std::size_t room = 1 + random_below(std::min(entry.size, kElsewhere / 2));
  const std::size_t bytes = room + 1 + random_below(kElsewhere / 2 - 1);
  char* const at = static_cast<char*>(hidden(entry.block + entry.size - room));
  for (std::size_t i = 0; i < room; ++i) at[i] = 'b';
  memset(elsewhere, 'c', kElsewhere);
  if (one_in(2)) {
    write_by_any(at, bytes);
    for (std::size_t i = 0; i + 1 < room; ++i) CHECK(at[i] == 'a', "byte %zu of %zu", i, room);
    CHECK(at[room - 1] == 'a' || at[room - 1] == '\0', "the last of %zu bytes", room);
  } else {
    read_by_any(at, bytes);
    for (std::size_t i = 0; i < room; ++i) CHECK(elsewhere[i] == 'b', "byte %zu of %zu", i, room);
    CHECK(elsewhere[room] == 'c' || elsewhere[room] == '\0', "behind %zu bytes", room);
  }
  entry.write();
  findings.expect({"copy_past_the_end"}, at);
}
// Nothing is copied.
void copy_after_free() {
  const Freed* const freed = random_freed();
  if (!has_copies || freed == nullptr || !freed->waits()) return;
  char* const at = static_cast<char*>(hidden(freed->block));
  const std::size_t bytes = hidden_size(1 + random_below(kElsewhere));
  one_in(2) ? memset(at, 'a', bytes) : memcpy(elsewhere, at, bytes);
  findings.expect({"copy_after_free"}, at);
}

// --- all of it ----------------------------------------------------------------------------------

void make_defect(std::size_t index) {
  const Live& entry = live[index];
  findings.note("with a block of %zu bytes, alignment %zu, origin %d, %s heap%s", entry.size,
                entry.alignment, static_cast<int>(entry.origin), entry.heap == nullptr ? "no" : "a",
                entry.is_resized ? ", resized" : "");
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
  switch (random_below(11)) {
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
    case 8:
      return copy_past_end(live[index]);
    case 9:
      return copy_after_free();
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
  if (strcmp(word, "copies") == 0) {
    has_copies = true;
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
