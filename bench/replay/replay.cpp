// Runs a prepared trace: every recorded thread is a thread here, the one that began the program is
// the main thread. Nothing but the recorded calls uses the allocator; tables and buffers come from
// the system. A thread runs freely, but for two things: it waits for a block that another thread
// has not allocated yet, and for threads that are more than two windows behind (prepared.hpp).
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "harness.hpp"
#include "prepared.hpp"
#include "record/format.hpp"

namespace {

using allod::record::take_number;
using namespace replay;

enum Touch : std::uint64_t { kNothing = 0, kEnds = 1, kPages = 2 };

std::uint64_t g_touch = kPages;
std::uint64_t g_touch_most = std::uint64_t{64} << 20U;
std::uint64_t g_verify = 0;

constexpr bench::Parameter kParameters[] = {
    {"touch", &g_touch, kNothing, kPages, "of each block: 0 nothing, 1 both ends, 2 every page"},
    {"touch-most", &g_touch_most, 0, UINT64_MAX, "bytes of a block whose pages are touched"},
    {"verify", &g_verify, 0, 1, "whether blocks must keep their contents"},
};
bench::Workload g_workload("replay", "the allocation calls of a recorded program", kParameters);

// Memory of our own, which is told apart from that of the allocator.
std::atomic<std::uint64_t> g_own_bytes = 0;
std::atomic<std::uint64_t> g_own_peak = 0;

template <class T>
T* map_own(std::uint64_t count) {
  const std::uint64_t bytes = count * sizeof(T);
  if (bytes == 0) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) bench::die("no memory for tables of %zu bytes", std::size_t{bytes});
  const std::uint64_t now = g_own_bytes.fetch_add(bytes) + bytes;
  std::uint64_t peak = g_own_peak.load();
  while (peak < now && !g_own_peak.compare_exchange_weak(peak, now)) {
  }
  return static_cast<T*>(memory);
}
template <class T>
void unmap_own(T* memory, std::uint64_t count) {
  if (count == 0) return;
  munmap(memory, count * sizeof(T));
  g_own_bytes.fetch_sub(count * sizeof(T));
}

// A place for a block. Those of a thread's own table are used without synchronisation.
using Slot = std::atomic<unsigned char*>;

const PreparedHeader* g_header;
const PreparedThread* g_prepared_threads;
const PreparedWindow* g_prepared_windows;
const PreparedChunk* g_chunks;
int g_file = -1;
Slot* g_shared;
std::atomic<std::uint64_t> g_checksum = 0;

void read_exactly(void* to, std::uint64_t bytes, std::uint64_t offset) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const ssize_t count = pread(g_file, at, bytes, static_cast<off_t>(offset));
    if (count <= 0) bench::die("the prepared trace cannot be read");
    at += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

// Which windows are done, and which threads run.
class Schedule {
 public:
  void open(std::uint32_t windows) {
    left_ = map_own<std::atomic<std::uint32_t>>(windows);
    for (std::uint32_t i = 0; i < windows; ++i) left_[i] = g_prepared_windows[i].threads;
    sampled_ = windows / kSamples + 1;
    ids_ = map_own<pthread_t>(g_header->threads);
    ended_ = map_own<std::uint32_t>(g_header->threads);
    order_ = map_own<std::uint32_t>(g_header->threads);
    for (std::uint32_t i = 0; i < g_header->threads; ++i) order_[i] = i;
    // The main thread is here already, and is first of all.
    std::sort(order_ + 1, order_ + g_header->threads, [](std::uint32_t a, std::uint32_t b) {
      return g_prepared_threads[a].first_window < g_prepared_threads[b].first_window;
    });
  }
  void start() {
    pthread_mutex_lock(&lock_);
    start_threads();
    pthread_mutex_unlock(&lock_);
  }
  // Until all windows but the last two up to this one are done.
  void wait(std::uint32_t window) {
    if (is_open(window)) return;
    pthread_mutex_lock(&lock_);
    while (!is_open(window)) pthread_cond_wait(&changed_, &lock_);
    pthread_mutex_unlock(&lock_);
  }
  // The calling thread has no more events in the window.
  void leave(std::uint32_t window) {
    if (left_[window].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    pthread_mutex_lock(&lock_);
    std::uint32_t done = done_.load(std::memory_order_relaxed);
    while (done < g_header->windows && left_[done].load(std::memory_order_acquire) == 0) {
      ++done;
      if (done == g_header->windows || done % sampled_ == 0) sample(done);
    }
    done_.store(done, std::memory_order_release);
    start_threads();
    pthread_cond_broadcast(&changed_);
    pthread_mutex_unlock(&lock_);
  }
  // The calling thread, which is not the main thread, ends.
  void end(std::uint32_t thread) {
    pthread_mutex_lock(&lock_);
    ended_[ended_count_++] = thread;
    pthread_cond_broadcast(&changed_);
    pthread_mutex_unlock(&lock_);
  }
  // By the main thread, when it has done its own part.
  void join_all() {
    pthread_mutex_lock(&lock_);
    for (;;) {
      join_ended();
      if (joined_ == g_header->threads - 1) break;
      pthread_cond_wait(&changed_, &lock_);
    }
    pthread_mutex_unlock(&lock_);
  }

  bench::Series resident{"resident", "events", "KiB"};
  bench::Series live{"live", "events", "KiB"};

 private:
  bool is_open(std::uint32_t window) const {
    return done_.load(std::memory_order_acquire) + 1 >= window;
  }
  void start_threads();
  void join_ended() {
    while (joined_ < ended_count_) pthread_join(ids_[ended_[joined_++]], nullptr);
  }
  void sample(std::uint32_t done) {
    const double share = static_cast<double>(done) / g_header->windows;
    const double at = share * static_cast<double>(g_header->events);
    resident.add(at, static_cast<double>(bench::resident_kib()));
    live.add(at, static_cast<double>(g_prepared_windows[done - 1].live_bytes) / 1024);
  }

  static constexpr std::uint32_t kSamples = 250;

  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::atomic<std::uint32_t> done_ = 0;  // windows, from the first on
  std::atomic<std::uint32_t>* left_ = nullptr;
  std::uint32_t sampled_ = 1;  // every so many windows
  pthread_t* ids_ = nullptr;
  std::uint32_t* order_ = nullptr;
  std::uint32_t started_ = 1;
  std::uint32_t* ended_ = nullptr;
  std::uint32_t ended_count_ = 0;
  std::uint32_t joined_ = 0;
};
Schedule g_schedule;

// What is written to a block; both its ends have it.
std::uint64_t tag_of(std::uint64_t slot, std::uint64_t size) { return (slot * 31 + size) & 0xFFU; }

class Player {
 public:
  explicit Player(std::uint32_t number) : thread_{g_prepared_threads[number]} {
    own_ = map_own<Slot>(thread_.own_slots);
    buffer_ = map_own<std::uint8_t>(kBufferBytes);
  }
  ~Player() {
    unmap_own(buffer_, kBufferBytes);
    unmap_own(own_, thread_.own_slots);
    g_checksum.fetch_add(sum_);
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void play() {
    std::uint32_t window = thread_.first_window;
    g_schedule.wait(window);
    const std::uint8_t* at = nullptr;
    const std::uint8_t* end = nullptr;
    for (std::uint64_t chunk = thread_.first_chunk;;) {
      if (at == end) {
        const PreparedChunk& next = g_chunks[chunk++];
        read_exactly(buffer_, next.bytes, next.offset);
        at = buffer_;
        end = buffer_ + next.bytes;
      }
      const std::uint8_t byte = *at++;
      const auto op = static_cast<Op>(byte & 7U);
      if (op <= Op::window) {
        g_schedule.leave(window);
        if (op == Op::end) return;
        window += static_cast<std::uint32_t>(take_number(at));
        g_schedule.wait(window);
        continue;
      }
      run(op, byte, at);
    }
  }

 private:
  // The longest number is read 8 bytes at a time, whatever follows it.
  static constexpr std::uint64_t kBufferBytes = kMostChunkBytes + 4096;

  [[gnu::always_inline]] void run(Op op, std::uint8_t byte, const std::uint8_t*& at) {
    const std::uint64_t slot = take_number(at);
    const std::uint64_t size = take_number(at);
    const bool shared = (byte & kShared) != 0;
    sum_ += size * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(op);
    switch (op) {
      case Op::malloc:
        return keep(slot, shared, filled(bench::allocate(size), slot, size));
      case Op::calloc:
        return keep(slot, shared, filled(clear(size), slot, size));
      case Op::aligned:
        return keep(slot, shared, filled(aligned(take_number(at), size), slot, size));
      case Op::realloc: {
        const std::uint64_t old_slot = take_number(at);
        const std::uint64_t old_size = take_number(at);
        unsigned char* const old = take(old_slot, (byte & kOldShared) != 0);
        return keep(slot, shared, resized(old, old_slot, old_size, slot, size));
      }
      default: {
        unsigned char* const block = take(slot, shared);
        check(block, slot, size);
        std::free(block);
      }
    }
  }

  void keep(std::uint64_t slot, bool shared, unsigned char* block) {
    Slot& place = shared ? g_shared[slot] : own_[slot];
    place.store(block, std::memory_order_release);
  }
  unsigned char* take(std::uint64_t slot, bool shared) {
    if (!shared) return own_[slot].load(std::memory_order_relaxed);
    Slot& place = g_shared[slot];
    unsigned char* block = nullptr;
    bench::wait_until([&] {
      block = place.load(std::memory_order_acquire);
      return block != nullptr;
    });
    place.store(nullptr, std::memory_order_relaxed);
    return block;
  }

  static unsigned char* clear(std::uint64_t size) {
    auto* const block = static_cast<unsigned char*>(std::calloc(1, size));
    if (block == nullptr) bench::die("calloc(1, %zu) failed", std::size_t{size});
    if (g_verify != 0 && size > 0 &&
        (bench::read_byte(block) | bench::read_byte(block + size - 1))) {
      bench::die("calloc gave %zu bytes that are not zero", std::size_t{size});
    }
    return block;
  }
  static unsigned char* aligned(std::uint64_t power, std::uint64_t size) {
    const std::uint64_t alignment =
        std::max<std::uint64_t>(std::uint64_t{1} << power, sizeof(void*));
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) {
      bench::die("posix_memalign(%zu, %zu) failed", std::size_t{alignment}, std::size_t{size});
    }
    if (reinterpret_cast<std::uintptr_t>(block) % alignment != 0) {
      bench::die("posix_memalign gave %p for an alignment of %zu", block, std::size_t{alignment});
    }
    return static_cast<unsigned char*>(block);
  }
  unsigned char* resized(unsigned char* old, std::uint64_t old_slot, std::uint64_t old_size,
                         std::uint64_t slot, std::uint64_t size) {
    check(old, old_slot, old_size);
    auto* const block = static_cast<unsigned char*>(std::realloc(old, size));
    if (block == nullptr) bench::die("realloc to %zu bytes failed", std::size_t{size});
    if (g_verify != 0 && old_size > 0) {
      const std::uint64_t expected = tag_of(old_slot, old_size);
      if (bench::read_byte(block) != expected ||
          (size >= old_size && bench::read_byte(block + old_size - 1) != expected)) {
        bench::die("realloc lost what was in %zu bytes", std::size_t{old_size});
      }
    }
    return filled(block, slot, size, old_size);
  }

  // Writes to the block as the program will have done; the first `old_size` bytes are not new.
  static unsigned char* filled(unsigned char* block, std::uint64_t slot, std::uint64_t size,
                               std::uint64_t old_size = 0) {
    if (size == 0 || (g_touch == kNothing && g_verify == 0)) return block;
    const std::uint64_t tag = tag_of(slot, size);
    if (g_touch == kPages) {
      const std::uint64_t most = std::min(size, g_touch_most);
      for (std::uint64_t at = (old_size + 4095) / 4096 * 4096; at < most; at += 4096) {
        bench::write_byte(block + at, tag);
      }
    }
    bench::write_byte(block, tag);
    bench::write_byte(block + size - 1, tag);
    return block;
  }
  void check(const unsigned char* block, std::uint64_t slot, std::uint64_t size) {
    const std::uint64_t tag = tag_of(slot, size);
    sum_ += tag;
    if (g_verify == 0 || size == 0) return;
    if (bench::read_byte(block) != tag || bench::read_byte(block + size - 1) != tag) {
      bench::die("a block of %zu bytes was overwritten", std::size_t{size});
    }
  }

  const PreparedThread& thread_;
  Slot* own_;
  std::uint8_t* buffer_;
  std::uint64_t sum_ = 0;
};

void* run_thread(void* argument) {
  const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(argument));
  Player{number}.play();
  g_schedule.end(number);
  return nullptr;
}

// Those whose first window is open, or will be when it is their turn; those that ended go.
void Schedule::start_threads() {
  join_ended();
  const std::uint32_t done = done_.load(std::memory_order_relaxed);
  for (; started_ < g_header->threads; ++started_) {
    const std::uint32_t number = order_[started_];
    if (g_prepared_threads[number].first_window > done + 1) return;
    ids_[number] = bench::start_thread(run_thread, reinterpret_cast<void*>(std::uintptr_t{number}));
  }
}

template <class T>
const T* read_table(std::uint64_t count, std::uint64_t& offset) {
  T* const table = map_own<T>(count);
  read_exactly(table, count * sizeof(T), offset);
  offset += count * sizeof(T);
  return table;
}

void open_prepared(const char* path) {
  g_file = open(path, O_RDONLY | O_CLOEXEC);
  if (g_file < 0) bench::die("%s cannot be read", path);
  static PreparedHeader header;
  read_exactly(&header, sizeof header, 0);
  if (std::memcmp(header.magic, kPreparedMagic, sizeof kPreparedMagic) != 0) {
    bench::die("%s is not a prepared trace", path);
  }
  g_header = &header;
  std::uint64_t offset = header.index;
  g_prepared_threads = read_table<PreparedThread>(header.threads, offset);
  g_prepared_windows = read_table<PreparedWindow>(header.windows, offset);
  g_chunks = read_table<PreparedChunk>(header.chunks, offset);
  g_shared = map_own<Slot>(header.shared_slots);
  g_schedule.open(header.windows);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], "--file") != 0) {
    bench::die("usage: replay --file PREPARED_TRACE [--touch 0|1|2] ...");
  }
  open_prepared(argv[2]);
  argv[2] = argv[0];
  g_workload.parse(argc - 2, argv + 2);

  g_workload.start();
  g_schedule.start();
  Player{0}.play();
  g_schedule.join_all();
  g_workload.stop();

  const auto kib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1024; };
  g_workload.series(g_schedule.resident);
  g_workload.series(g_schedule.live);
  g_workload.figure("own memory at the peak", kib(g_own_peak), "KiB");
  g_workload.figure("own memory at the end", kib(g_own_bytes), "KiB");
  g_workload.figure("peak live", kib(g_header->peak_live_bytes), "KiB");
  g_workload.figure("threads", g_header->threads);
  g_workload.report(g_header->events, g_checksum);
}
