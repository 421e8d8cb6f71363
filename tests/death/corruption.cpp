// Random calls with defects among them, and a model that says which of them the hardened library
// must find: all that are made, each at its time, and nothing else.
//
//   corruption SEED OPERATIONS
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cases.h"

namespace {

enum Origin { kC, kNew, kArray };

struct Live {
  unsigned char* block;
  std::size_t size;
  Origin origin;
  bool is_resized;
};

constexpr std::size_t kMost = 400;
Live live[kMost];
std::size_t live_count = 0;
std::uint64_t random_state;
int reports[2];
unsigned long findings = 0;

std::uint64_t random_below(std::uint64_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % bound;
}

std::size_t random_size() {
  const std::uint64_t kind = random_below(100);
  if (kind < 70) return 1 + random_below(300);
  if (kind < 95) return 1 + random_below(20'000);
  return 1 + random_below(600'000);
}

// --- what is reported -----------------------------------------------------------------------

// Reads what has come since the last look.
std::size_t read_reports(char* text, std::size_t room) {
  std::size_t length = 0;
  for (;;) {
    const ssize_t got = read(reports[0], text + length, room - length - 1);
    if (got <= 0) break;
    length += static_cast<std::size_t>(got);
  }
  text[length] = '\0';
  return length;
}

void expect_one_of(const char* const (&kinds)[3], const void* address) {
  static char text[65536];
  read_reports(text, sizeof text);
  bool found = false;
  for (const char* kind : kinds) {
    char wanted[128];
    const int length =
        snprintf(wanted, sizeof wanted, "{\"allod\":\"error\",\"kind\":\"%s\",\"address\":\"%p\"",
                 kind, const_cast<void*>(address));
    found = found || strncmp(text, wanted, static_cast<std::size_t>(length)) == 0;
  }
  CHECK(found, "expected %s of %p, found %s", kinds[0], address, text);
  CHECK(strchr(text, '\n') == text + strlen(text) - 1, "one report was expected: %s", text);
  ++findings;
}
void expect(const char* kind, const void* address) { expect_one_of({kind, kind, kind}, address); }
void expect_nothing() {
  static char text[65536];
  CHECK(read_reports(text, sizeof text) == 0, "nothing was wrong, but: %s", text);
}

// --- calls ------------------------------------------------------------------------------------

void release_plainly(const Live& entry) {
  switch (entry.origin) {
    case kC:
      return free(entry.block);
    case kNew:
      return ::operator delete(entry.block);
    case kArray:
      return ::operator delete[](entry.block, entry.size);
  }
}

// A second thread, which frees what it is told to.
sem_t wanted, done;
Live order;
void* helper(void*) {
  for (;;) {
    while (sem_wait(&wanted) != 0) {
    }
    if (order.block == nullptr) return nullptr;
    release_plainly(order);
    sem_post(&done);
  }
}
void release_elsewhere(const Live& entry) {
  order = entry;
  sem_post(&wanted);
  while (sem_wait(&done) != 0) {
  }
}
void release(const Live& entry) {
  random_below(3) == 0 ? release_elsewhere(entry) : release_plainly(entry);
}

void allocate() {
  const std::size_t size = random_size();
  const auto origin = static_cast<Origin>(random_below(3));
  void* const block = origin == kNew     ? ::operator new(size)
                      : origin == kArray ? ::operator new[](size)
                      : random_below(2)  ? malloc(size)
                                         : calloc(size, 1);
  memset(hidden(block), 0x5a, size);
  live[live_count++] = {static_cast<unsigned char*>(block), size, origin, false};
}
Live take_out(std::size_t index) {
  const Live entry = live[index];
  live[index] = live[--live_count];
  return entry;
}
void resize(Live& entry) {
  if (entry.origin != kC) return;
  const std::size_t size = random_size();
  void* const moved = hidden(realloc(entry.block, size));
  CHECK(moved != nullptr, "realloc");
  memset(moved, 0x5a, size);
  entry = {static_cast<unsigned char*>(moved), size, kC, true};
}
bool is_live(const void* address) {
  for (std::size_t i = 0; i < live_count; ++i) {
    if (live[i].block == address) return true;
  }
  return false;
}

// --- defects ------------------------------------------------------------------------------------

// The address that was freed here last but so many; some are in use again.
constexpr std::size_t kRemembered = 64;
void* remembered[kRemembered];
std::size_t remembered_count = 0;

void free_twice() {
  if (remembered_count == 0) return;
  void* const address =
      remembered[random_below(remembered_count < kRemembered ? remembered_count : kRemembered)];
  if (is_live(address)) return;
  random_below(2) == 0 ? free(hidden(address)) : ::operator delete(hidden(address));
  // Its slab may have gone since, and others, or nobody, may be there.
  expect_one_of({"double_free", "invalid_free", "foreign_free"}, address);
}
void free_inside(const Live& entry) {
  if (entry.size < 2) return;
  unsigned char* const address = entry.block + 1 + random_below(entry.size - 1);
  free(hidden(address));
  expect("invalid_free", address);
}
void free_stack() {
  int local = 0;
  free(hidden(&local));
  expect("foreign_free", &local);
}
void write_behind(const Live& entry) {
  entry.block[entry.size + random_below(8)] ^= static_cast<unsigned char>(1 + random_below(255));
  release(entry);
  expect("overflow", entry.block);
}
void free_wrongly(const Live& entry) {
  entry.origin == kC ? ::operator delete(entry.block) : free(hidden(entry.block));
  expect("wrong_function", entry.block);
}
void free_with_wrong_size(const Live& entry) {
  if (entry.origin == kC) return;
  const std::size_t claimed = entry.size + (random_below(2) == 0 ? 1 : 8);
  entry.origin == kNew ? ::operator delete(entry.block, claimed)
                       : ::operator delete[](entry.block, claimed);
  expect("size_mismatch", entry.block);
}
void write_after(const Live& entry) {
  // A large block is gone, and the write would be the end. What realloc moves may get a block that
  // is larger than it has to be.
  if (entry.size > (entry.is_resized ? 20'000U : 100'000U)) return release(entry);
  release_plainly(entry);
  unsigned char* const address = entry.block + random_below(entry.size);
  *address ^= 1;
  // Until it has left the quarantine.
  for (int i = 0; i < 130; ++i) free(hidden(malloc(40)));
  expect("write_after_free", address);
}

void step() {
  const std::uint64_t choice = random_below(100);
  if (live_count == 0 || (choice < 48 && live_count < kMost)) return allocate();
  const std::size_t index = random_below(live_count);
  if (choice < 85) {
    const Live entry = take_out(index);
    release(entry);
    remembered[remembered_count++ % kRemembered] = entry.block;
  } else if (choice < 90) {
    resize(live[index]);
  } else if (choice == 90) {
    free_twice();
  } else if (choice == 91) {
    free_inside(live[index]);
  } else if (choice == 92) {
    free_stack();
  } else if (choice == 93) {
    free_wrongly(live[index]);
  } else if (choice == 94) {
    free_with_wrong_size(live[index]);
  } else if (choice == 95) {
    write_behind(take_out(index));
  } else if (choice == 96) {
    write_after(take_out(index));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3, "usage: corruption SEED OPERATIONS");
  random_state = strtoull(argv[1], nullptr, 0) * 2 + 1;
  const unsigned long operations = strtoul(argv[2], nullptr, 0);
  CHECK(pipe2(reports, O_NONBLOCK) == 0, "pipe2");
  char descriptor[16];
  snprintf(descriptor, sizeof descriptor, "%d", reports[1]);
  const auto set =
      reinterpret_cast<int (*)(const char*, const char*)>(find_function("allod_option_set"));
  CHECK(set("REPORT_FD", descriptor) == 0 && set("ABORT_ON_ERROR", "0") == 0 &&
            set("SHOW_ERRORS", "0") == 0,
        "options");
  pthread_t thread;
  sem_init(&wanted, 0, 0);
  sem_init(&done, 0, 0);
  CHECK(pthread_create(&thread, nullptr, helper, nullptr) == 0, "pthread_create");
  for (unsigned long i = 0; i < operations; ++i) {
    step();
    expect_nothing();
  }
  while (live_count > 0) release(take_out(live_count - 1));
  order.block = nullptr;
  sem_post(&wanted);
  pthread_join(thread, nullptr);
  expect_nothing();
  printf("%lu operations, %lu defects, all found\n", operations, findings);
  return 0;
}
