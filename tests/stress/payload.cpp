// Threads that allocate, resize, pass on and free blocks, each of which says who wrote it, where,
// how large it is and which one it was; every byte is verified before the block goes.
//
//   payload SEED THREADS OPERATIONS [turns] [unforked]
//
// Each of THREADS seats is taken by one thread after another, OPERATIONS per seat in all. A thread
// that ends leaves its blocks to the others. A block that two hold at once, or that is written
// after it was passed on, shows up as a stamp or a pattern of another block's. With `turns`, no two
// threads allocate at the same time; with `unforked`, none forks.
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cases.h"

namespace {

using std::size_t;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }
  size_t below(size_t bound) { return next() % bound; }
  bool one_in(size_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};

// Sizes from 1 B to 8 MiB. The octave is the least of five draws, so that each is rarer than the
// one below, and the largest still come.
size_t draw_size(Random& random) {
  size_t octave = 23;
  for (int draw = 0; draw < 5; ++draw) {
    octave = std::min(octave, random.below(23));
  }
  const size_t least = size_t{1} << octave;
  return least + random.below(least);
}

enum class Origin : std::uint8_t { kMalloc, kNew, kNewArray, kAlignedNew };

struct Stamp {
  std::uint64_t address;
  std::uint64_t size;
  std::uint64_t writer;
  std::uint64_t sequence;

  bool operator==(const Stamp&) const = default;
};

// What is known about a block outside of it; itself a block, freed by whoever frees the other.
struct Entry {
  void* block;
  size_t size;
  std::uint64_t writer;
  std::uint64_t sequence;
  std::align_val_t alignment;
  Origin origin;
  std::uint64_t seal;

  std::uint64_t expected_seal() const {
    return (seed() ^ reinterpret_cast<std::uintptr_t>(block) ^ size ^
            static_cast<std::uint64_t>(origin)) *
           0x9e3779b97f4a7c15u;
  }

  Stamp stamp() const { return {reinterpret_cast<std::uintptr_t>(block), size, writer, sequence}; }
  std::uint64_t seed() const { return (writer << 40) ^ sequence; }

  void write() {
    seal = expected_seal();
    fill(block, size, seed());
    if (size >= sizeof(Stamp)) {
      const Stamp mine = stamp();
      std::memcpy(block, &mine, sizeof mine);
    }
  }

  // An entry that two hold, or that was freed under its holder, is not what was sealed.
  void check_seal() const {
    CHECK(seal == expected_seal(), "the entry %p of a block was overwritten",
          static_cast<const void*>(this));
  }

  // The first `kept` bytes of what was written when the block had `size` bytes at `address`.
  void verify(size_t kept, const Stamp& expected) const {
    size_t start = 0;
    if (size >= sizeof(Stamp) && kept >= sizeof(Stamp)) {
      Stamp found{};
      std::memcpy(&found, block, sizeof found);
      CHECK(found == expected,
            "block %#" PRIx64 " of %" PRIu64 " bytes, number %" PRIu64 " of writer %" PRIu64
            ", says that it is %#" PRIx64 " of %" PRIu64 " bytes, number %" PRIu64
            " of writer %" PRIu64,
            expected.address, expected.size, expected.sequence, expected.writer, found.address,
            found.size, found.sequence, found.writer);
      start = sizeof(Stamp);
    } else if (size >= sizeof(Stamp)) {
      CHECK(std::memcmp(block, &expected, kept) == 0, "realloc to %zu bytes lost content", kept);
      return;
    }
    CHECK(pattern_holds(start, kept),
          "block %#" PRIx64 " of %" PRIu64 " bytes, number %" PRIu64 " of writer %" PRIu64
          ", was overwritten",
          expected.address, expected.size, expected.sequence, expected.writer);
  }
  void verify() const {
    check_seal();
    verify(size, stamp());
  }

 private:
  // The pattern goes by position, so that what follows the stamp is compared in place.
  bool pattern_holds(size_t start, size_t end) const {
    if (start == 0) {
      return holds(block, end, seed());
    }
    Stamp saved{};
    auto* bytes = static_cast<unsigned char*>(block);
    unsigned char expected[sizeof(Stamp)];
    fill(expected, sizeof expected, seed());
    std::memcpy(&saved, bytes, sizeof saved);
    std::memcpy(bytes, expected, sizeof expected);
    const bool result = holds(block, end, seed());
    std::memcpy(bytes, &saved, sizeof saved);
    return result;
  }
};

void* allocate_aligned(Random& random, size_t size, size_t alignment) {
  void* block = nullptr;
  switch (random.below(3)) {
    case 0:
      return memalign(alignment, size);
    case 1:
      return aligned_alloc(alignment, size);
    default:
      CHECK(posix_memalign(&block, std::max(alignment, sizeof(void*)), size) == 0,
            "posix_memalign(&p, %zu, %zu)", alignment, size);
      return block;
  }
}

Entry* make_entry(Random& random, std::uint64_t writer, std::uint64_t sequence) {
  auto* entry = static_cast<Entry*>(obtain(sizeof(Entry)));
  const size_t size = draw_size(random);
  *entry = {nullptr, size, writer, sequence, std::align_val_t{8}, Origin::kMalloc, 0};
  switch (random.below(12)) {
    case 0:
      entry->block = calloc(1, size);
      CHECK(entry->block != nullptr && is_zero(entry->block, size),
            "calloc(1, %zu) is not all zero", size);
      break;
    case 1:
      entry->alignment = std::align_val_t{size_t{1} << random.below(17)};
      entry->block = allocate_aligned(random, size, static_cast<size_t>(entry->alignment));
      break;
    case 2:
      entry->origin = Origin::kNew;
      entry->block = ::operator new(size);
      break;
    case 3:
      entry->origin = Origin::kNewArray;
      entry->block = ::operator new[](size, std::nothrow);
      break;
    case 4:
      entry->origin = Origin::kAlignedNew;
      entry->alignment = std::align_val_t{size_t{16} << random.below(9)};
      entry->block = ::operator new(size, entry->alignment);
      break;
    case 5:
      entry->block = realloc(nullptr, size);
      break;
    default:
      entry->block = malloc(size);
  }
  entry->block = hidden(entry->block);
  CHECK(entry->block != nullptr, "%zu bytes: %s", size, std::strerror(errno));
  CHECK(is_aligned(entry->block, static_cast<size_t>(entry->alignment)),
        "%zu bytes aligned to %zu are at %p", size, static_cast<size_t>(entry->alignment),
        entry->block);
  CHECK(malloc_usable_size(entry->block) >= size, "%zu bytes are too few for %zu",
        malloc_usable_size(entry->block), size);
  entry->write();
  return entry;
}

void destroy(Entry* entry) {
  entry->verify();
  switch (entry->origin) {
    case Origin::kMalloc:
      free(entry->block);
      break;
    case Origin::kNew:
      ::operator delete(entry->block, entry->size);
      break;
    case Origin::kNewArray:
      ::operator delete[](entry->block);
      break;
    case Origin::kAlignedNew:
      ::operator delete(entry->block, entry->size, entry->alignment);
      break;
  }
  free(entry);
}

void resize(Random& random, Entry* entry, std::uint64_t writer, std::uint64_t sequence) {
  entry->verify();
  if (entry->origin != Origin::kMalloc) {
    return;
  }
  const size_t size =
      random.one_in(2) ? entry->size + random.below(entry->size + 100) + 1 : draw_size(random);
  if (size > 16 * size_t{MIB}) {
    return;
  }
  const Stamp before = entry->stamp();
  entry->block = hidden(realloc(entry->block, size));
  CHECK(entry->block != nullptr, "realloc(p, %zu): %s", size, std::strerror(errno));
  entry->verify(std::min(entry->size, size), before);
  entry->alignment = std::align_val_t{8};
  entry->size = size;
  entry->writer = writer;
  entry->sequence = sequence;
  entry->write();
}

bool with_turns = false;
bool with_forks = true;
pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

// As long as it is there, no other thread allocates, if they take turns.
class Turn {
 public:
  Turn() { CHECK(!with_turns || pthread_mutex_lock(&turn) == 0, "pthread_mutex_lock"); }
  // Who has waited comes before who has just been.
  ~Turn() {
    if (with_turns) {
      pthread_mutex_unlock(&turn);
      sched_yield();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

// Where threads leave blocks for each other: one at a time, or many at once.
struct Batch {
  static constexpr size_t kEntries = 200;
  std::array<Entry*, kEntries> entries;
  size_t count;
};

std::array<std::atomic<Entry*>, 64> mailboxes;
std::array<std::atomic<Batch*>, 16> batch_boxes;

void destroy(Batch* batch, Random& random) {
  // In order, backwards, or scattered.
  const size_t start = random.below(batch->count + 1);
  const bool backwards = random.one_in(2);
  for (size_t i = 0; i < batch->count; ++i) {
    const size_t index = (start + (backwards ? batch->count - 1 - i : i)) % batch->count;
    destroy(batch->entries[index]);
  }
  free(batch);
}

// One thread of a seat: its living blocks, and the operations on them.
class Worker {
 public:
  Worker(std::uint64_t seed, std::uint64_t name) : random_(seed), name_(name) {}

  void run(size_t operations) {
    for (size_t i = 0; i < operations; ++i) {
      const Turn mine;
      step();
    }
    const Turn mine;
    leave_everything();
  }

 private:
  static constexpr size_t kTable = 1500;

  void step() {
    Entry*& entry = table_[random_.below(kTable)];
    const size_t choice = random_.below(1000);
    if (entry == nullptr) {
      entry = make_entry(random_, name_, ++sequence_);
    } else if (choice < 450) {
      destroy(entry);
      entry = nullptr;
    } else if (choice < 600) {
      resize(random_, entry, name_, ++sequence_);
    } else if (choice < 900) {
      // What was in the box becomes ours, or goes at once.
      Entry* received = mailboxes[random_.below(mailboxes.size())].exchange(entry);
      entry = received;
      if (entry != nullptr && random_.one_in(2)) {
        destroy(entry);
        entry = nullptr;
      }
    } else if (choice < 994) {
      entry->verify();
    } else if (choice < 999) {
      pass_batch_on();
    } else {
      rarely();
    }
  }

  void pass_batch_on() {
    auto* batch = static_cast<Batch*>(obtain(sizeof(Batch)));
    batch->count = 0;
    for (size_t i = 0; i < Batch::kEntries; ++i) {
      batch->entries[batch->count++] = make_entry(random_, name_, ++sequence_);
    }
    exchange_batch(batch);
  }

  void exchange_batch(Batch* batch) {
    batch = batch_boxes[random_.below(batch_boxes.size())].exchange(batch);
    if (batch != nullptr) {
      destroy(batch, random_);
    }
  }

  void rarely() {
    switch (random_.below(20)) {
      case 0:
        malloc_trim(0);
        break;
      case 1:
        (void)mallinfo2();
        break;
      case 2:
        if (with_forks) fork_and_continue();
        break;
      default:
        break;
    }
  }

  // The child owns a copy of everything; it can vouch for what belongs to this thread.
  void fork_and_continue() {
    const pid_t child = fork();
    CHECK(child >= 0, "fork: %s", std::strerror(errno));
    if (child == 0) {
      for (Entry* entry : table_) {
        if (entry != nullptr) {
          destroy(entry);
        }
      }
      for (int i = 0; i < 300; ++i) {
        destroy(make_entry(random_, name_ + 1000000, ++sequence_));
      }
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(status == 0, "a child ended with wait status %#x", status);
  }

  // Half goes on at once, for others to free; the rest is freed here.
  void leave_everything() {
    Batch* batch = nullptr;
    for (size_t i = 0; i < kTable; ++i) {
      if (table_[i] == nullptr) {
        continue;
      }
      if (i % 2 == 0) {
        destroy(table_[i]);
        continue;
      }
      if (batch == nullptr) {
        batch = static_cast<Batch*>(obtain(sizeof(Batch)));
        batch->count = 0;
      }
      batch->entries[batch->count++] = table_[i];
      if (batch->count == Batch::kEntries) {
        exchange_batch(batch);
        batch = nullptr;
      }
    }
    if (batch != nullptr) {
      exchange_batch(batch);
    }
  }

  Random random_;
  std::uint64_t name_;
  std::uint64_t sequence_ = 0;
  std::array<Entry*, kTable> table_{};
};

struct Job {
  std::uint64_t seed;
  std::uint64_t name;
  size_t operations;
};

void* run_job(void* argument) {
  const Job& job = *static_cast<Job*>(argument);
  Worker worker(job.seed, job.name);
  worker.run(job.operations);
  return nullptr;
}

struct Seat {
  pthread_t thread;
  std::uint64_t seed;
  std::uint64_t index;
  size_t operations;
};

// Fills a seat until its operations are done, with threads of ever other lengths of life.
void* fill_seat(void* argument) {
  const Seat& seat = *static_cast<Seat*>(argument);
  Random random(seat.seed * 1000 + seat.index);
  std::uint64_t generation = 0;
  for (size_t left = seat.operations; left > 0;) {
    const size_t life =
        std::min(left, random.one_in(3) ? 1 + random.below(200) : 1 + random.below(60000));
    left -= life;
    Job job{random.next(), seat.index + 1000 * ++generation, life};
    pthread_t thread;
    {
      const Turn mine;
      CHECK(pthread_create(&thread, nullptr, run_job, &job) == 0, "pthread_create");
    }
    CHECK(pthread_join(thread, nullptr) == 0, "pthread_join");
  }
  return nullptr;
}

void empty_boxes(Random& random) {
  for (auto& box : mailboxes) {
    if (Entry* entry = box.exchange(nullptr)) {
      destroy(entry);
    }
  }
  for (auto& box : batch_boxes) {
    if (Batch* batch = box.exchange(nullptr)) {
      destroy(batch, random);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool is_known = argc >= 4;
  for (int i = 4; i < argc; ++i) {
    const bool is_turns = std::strcmp(argv[i], "turns") == 0;
    const bool is_unforked = std::strcmp(argv[i], "unforked") == 0;
    with_turns |= is_turns;
    with_forks &= !is_unforked;
    is_known &= is_turns || is_unforked;
  }
  if (!is_known) {
    std::fprintf(stderr, "usage: %s SEED THREADS OPERATIONS [turns] [unforked]\n", argv[0]);
    return 2;
  }
  verify_allocator();
  const std::uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const size_t threads = std::strtoull(argv[2], nullptr, 10);
  const size_t operations = std::strtoull(argv[3], nullptr, 10);
  static std::array<Seat, 256> seats;
  CHECK(threads > 0 && threads <= seats.size(), "%zu threads", threads);
  for (size_t i = 0; i < threads; ++i) {
    seats[i] = {{}, seed, i, operations};
    const Turn mine;
    CHECK(pthread_create(&seats[i].thread, nullptr, fill_seat, &seats[i]) == 0, "pthread_create");
  }
  for (size_t i = 0; i < threads; ++i) {
    CHECK(pthread_join(seats[i].thread, nullptr) == 0, "pthread_join");
  }
  Random random(seed);
  empty_boxes(random);
  std::printf("%zu threads did %zu operations each\n", threads, operations);
  return 0;
}
