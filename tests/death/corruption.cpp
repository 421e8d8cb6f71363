// Random calls with defects among them, and a model that says which of them must be found: all
// that are made, each at its time, and nothing else.
//
//   corruption SEED OPERATIONS           with the hardened library
//   corruption SEED OPERATIONS heaps     in hardened heaps of the default one
#include <allod.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

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
  // Is there a word behind its bytes?
  [[nodiscard]] bool has_canary() const {
    return is_watched() && size != 0 && (alignment < 4096 || only_heaps);
  }
};

constexpr std::size_t kMost = 400;
Live live[kMost];
std::size_t live_count = 0;

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

// --- malloc -------------------------------------------------------------------------------------

void* allocate_c(std::size_t size, std::size_t alignment) {
  void* block = nullptr;
  if (alignment == 1) return one_in(2) ? malloc(size) : calloc(size, 1);
  if (one_in(2)) return aligned_alloc(alignment, size);
  CHECK(posix_memalign(&block, alignment, size) == 0, "posix_memalign");
  return block;
}
void* allocate_by_new(std::size_t size, std::size_t alignment) {
  return alignment == 1 ? ::operator new(size) : ::operator new(size, std::align_val_t{alignment});
}
void* allocate_array(std::size_t size, std::size_t alignment) {
  return alignment == 1 ? ::operator new[](size)
                        : ::operator new[](size, std::align_val_t{alignment});
}
void* allocate_in(allod_heap_t* heap, std::size_t size, std::size_t alignment) {
  if (alignment != 1) return heap_aligned(heap, alignment, size);
  return one_in(2) ? heap_malloc(heap, size) : heap_calloc(heap, size, 1);
}

void allocate() {
  Live entry;
  entry.size = random_size();
  entry.alignment = random_alignment();
  entry.origin = only_heaps ? Origin::heap : static_cast<Origin>(random_below(4));
  if (entry.origin == Origin::heap) entry.heap = random_heap();
  const auto allocated = [&]() -> void* {
    switch (entry.origin) {
      case Origin::c:
        return allocate_c(entry.size, entry.alignment);
      case Origin::scalar:
        return allocate_by_new(entry.size, entry.alignment);
      case Origin::array:
        return allocate_array(entry.size, entry.alignment);
      case Origin::heap:
        break;
    }
    return allocate_in(entry.heap, entry.size, entry.alignment);
  };
  entry.block = static_cast<unsigned char*>(hidden(allocated()));
  // What others had left there is gone, but for large blocks of one heap alone.
  CHECK((only_heaps && entry.size > 100'000) || is_zero(entry.block, entry.size),
        "%p of %zu bytes is not zero", static_cast<void*>(entry.block), entry.size);
  add(entry);
}

void resize(std::size_t index) {
  Live entry = live[index];
  if (entry.origin == Origin::scalar || entry.origin == Origin::array) return;
  entry.check();
  const std::size_t size = 1 + random_size();
  allod_heap_t* const target = entry.heap != nullptr && one_in(2) ? random_heap() : nullptr;
  void* const block = hidden(entry.block);
  void* const moved = target != nullptr ? heap_realloc(target, block, size) : realloc(block, size);
  CHECK(moved != nullptr, "realloc");
  const std::size_t kept = entry.size < size ? entry.size : size;
  const std::size_t known = kept < Live::kEnd ? kept : Live::kEnd;
  CHECK(holds(moved, known, entry.seed), "what realloc has kept");
  if (target != nullptr) entry.heap = target;
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
  static const auto sized = function<decltype(free_sized)>("free_sized");
  static const auto aligned = function<decltype(free_aligned_sized)>("free_aligned_sized");
  entry.alignment == 1 ? sized(entry.block, entry.size)
                       : aligned(entry.block, entry.alignment, entry.size);
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
void release(const Live& entry) {
  if (!has_helper || !one_in(3)) return release_here(entry);
  order = entry;
  sem_post(&wanted);
  while (sem_wait(&done) != 0) {
  }
}

// The address that was freed last but so many; some are in use again.
constexpr std::size_t kRemembered = 64;
void* remembered[kRemembered];
std::size_t remembered_count = 0;

void release_and_remember(const Live& entry) {
  entry.check();
  release(entry);
  if (entry.is_watched()) remembered[remembered_count++ % kRemembered] = entry.block;
}
void* random_freed() {
  if (remembered_count == 0) return nullptr;
  const std::size_t known = remembered_count < kRemembered ? remembered_count : kRemembered;
  void* const address = remembered[random_below(known)];
  return is_live(address) ? nullptr : address;
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
      live[i++].heap = nullptr;
    }
  }
  destroyed ? heap_destroy(heap) : static_cast<void>(heap_delete(heap));
  heap = new_heap();
  // Nobody watches any more what was freed there.
  if (only_heaps) remembered_count = 0;
}

// --- defects ------------------------------------------------------------------------------------

// Its slab may have gone since, and others, or nobody, may be there.
const auto kNotInUse = {"double_free", "invalid_free", "foreign_free"};

void free_twice() {
  void* const address = random_freed();
  if (address == nullptr) return;
  if (only_heaps || one_in(2)) {
    free(hidden(address));
  } else {
    ::operator delete(hidden(address));
  }
  findings.expect(kNotInUse, address);
}
void resize_freed() {
  void* const address = random_freed();
  if (address == nullptr) return;
  CHECK(realloc(hidden(address), 1 + random_size()) == nullptr, "realloc of %p", address);
  findings.expect(kNotInUse, address);
}
void free_inside(const Live& entry) {
  if (entry.size < 2 || !entry.is_watched()) return;
  unsigned char* const address = entry.block + 1 + random_below(entry.size - 1);
  free(hidden(address));
  findings.expect({"invalid_free"}, address);
}
void free_stack() {
  int local = 0;
  free(hidden(&local));
  if (!only_heaps) findings.expect({"foreign_free"}, &local);
}
void free_wrongly(const Live& entry) {
  if (entry.size == 0 || entry.origin == Origin::heap) return;
  entry.origin == Origin::c ? ::operator delete(entry.block) : free(hidden(entry.block));
  findings.expect({"wrong_function"}, entry.block);
}
void free_to_wrong_heap(const Live& entry) {
  allod_heap_t* const wrong = random_heap();
  if (entry.size == 0 || entry.heap == wrong || !entry.is_watched()) return;
  heap_free(wrong, entry.block);
  findings.expect({"wrong_heap"}, entry.block);
}
void free_with_wrong_size(const Live& entry) {
  if (entry.size == 0 || only_heaps) return;
  const std::size_t claimed = entry.size + (one_in(2) ? 1 : 8);
  static const auto sized = function<decltype(free_sized)>("free_sized");
  switch (entry.origin) {
    case Origin::c:
      sized(entry.block, claimed);
      break;
    case Origin::scalar:
      ::operator delete(entry.block, claimed);
      break;
    case Origin::array:
      ::operator delete[](entry.block, claimed);
      break;
    case Origin::heap:
      entry.heap != nullptr ? heap_free_sized(entry.heap, entry.block, claimed)
                            : sized(entry.block, claimed);
  }
  findings.expect({"size_mismatch"}, entry.block);
}

void write_behind(std::size_t index) {
  const Live entry = live[index];
  if (!entry.has_canary()) return;
  unsigned char* const byte = entry.block + entry.size + random_below(8);
  *byte ^= static_cast<unsigned char>(1 + random_below(255));
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
    return free(moved);
  }
  release(entry);
  findings.expect({"overflow"}, entry.block);
}
void write_after(std::size_t index) {
  const Live entry = live[index];
  // A large block is gone, and the write would be the end. What realloc moves may get a block that
  // is larger than it has to be. In the hardened library, blocks of heaps do not wait.
  const std::size_t most = entry.is_resized || entry.alignment != 1 ? 20'000 : 100'000;
  const bool waits = only_heaps ? entry.heap != nullptr : entry.origin != Origin::heap;
  if (entry.size == 0 || entry.size > most || !waits) return;
  static_cast<void>(take_out(index));
  release_here(entry);
  unsigned char* const address = entry.block + random_below(entry.size);
  *address ^= 1;
  // Until it has left the quarantine.
  for (int i = 0; i < 130; ++i) {
    free(hidden(only_heaps ? heap_malloc(entry.heap, 40) : malloc(40)));
  }
  findings.expect({"write_after_free"}, address);
}

// --- all of it ----------------------------------------------------------------------------------

void make_defect(std::size_t index) {
  switch (random_below(9)) {
    case 0:
      return free_twice();
    case 1:
      return resize_freed();
    case 2:
      return free_inside(live[index]);
    case 3:
      return free_stack();
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
  if (live_count == 0 || (choice < 46 && live_count < kMost)) return allocate();
  const std::size_t index = random_below(live_count);
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

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3 || argc == 4, "usage: corruption SEED OPERATIONS [heaps]");
  random_state = strtoull(argv[1], nullptr, 0) * 2 + 1;
  const unsigned long operations = strtoul(argv[2], nullptr, 0);
  only_heaps = argc == 4 && strcmp(argv[3], "heaps") == 0;
  findings.start(set_option);
  for (allod_heap_t*& heap : heaps) heap = new_heap();
  pthread_t thread;
  sem_init(&wanted, 0, 0);
  sem_init(&done, 0, 0);
  CHECK(pthread_create(&thread, nullptr, helper, nullptr) == 0, "pthread_create");
  has_helper = true;
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
