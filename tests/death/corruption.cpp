// Random calls with defects among them, and a model that says which of them must be found: all
// that are made, each at its time, and nothing else.
//
//   corruption SEED OPERATIONS [WORD]...
//
// with the hardened library. Words: those of ALLOD_HARDENED, so that nothing is expected of a
// measure that is left out; `heaps`: in hardened heaps of the default library; `copies`: with the
// checked copies in front of it; a number: so many blocks in use, at most.
#include <allod.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "corruption_defects.hpp"

namespace {

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
  const bool is_none = strcmp(word, "none") == 0;
  const bool is_light = is_none || strcmp(word, "light") == 0;
  if (is_light || strcmp(word, "balanced") == 0) {
    has_quarantine = false;
    if (is_light) has_neighbours = has_zero = has_written = false;
    if (is_none) has_canaries = has_guards = has_empty = has_origin = false;
    return;
  }
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
