#include "hardened/sweep.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "allod/os/posix/at_fork.hpp"
#include "hardened/hardened.hpp"
#include "instance/memory_tags.hpp"
#include "scan/mappings.hpp"
#include "scan/own_frames.hpp"
#include "scan/page_reader.hpp"
#include "stop/stop_threads.hpp"
#include "text/text.hpp"

namespace allod::sweep {

namespace {

constexpr std::size_t kMost = std::size_t{1} << 22;
constexpr std::size_t kListBytes = kMost * sizeof(Address);
// Marks a block as pointed to; no address has this bit.
constexpr Address kPointedTo = Address{1} << 63;

// A sweep reads all memory of the program, so it starts only when a share of that may be freed.
constexpr std::size_t kLeastBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastBlocks = std::size_t{1} << 14;
constexpr std::size_t kShare = 2;
// A refused request causes a sweep only if it is at most 8 times the held bytes. After a sweep that
// did not help, the next must wait until 1/8 of the usual amount has been freed.
constexpr std::size_t kShareOfRequest = 8;
constexpr std::size_t kShareOfWanted = 8;
// If this many times more is held and no thread is available, the freeing thread sweeps.
constexpr std::size_t kPatience = 2;
// If this many times more is held, the freeing thread waits for the sweeper.
constexpr std::size_t kMostPatience = 4;

// The threads are stopped once at most kShortReading bytes were written during a reading; or at
// most kFairReading, and no longer fewer each time; or after kMostReadings.
constexpr std::size_t kShortReading = std::size_t{1} << 20;
constexpr std::size_t kFairReading = std::size_t{16} << 20;
constexpr int kMostReadings = 16;
// They are stopped again if a thread that cannot be stopped has run meanwhile.
constexpr int kMostStops = 3;

// Blocks examined for one batch, and batches per call of hold().
constexpr std::size_t kLooks = 256;
constexpr int kBatches = 16;

enum class Phase : std::uint8_t {
  holding,
  sweeping,    // the first `swept` blocks of the list; nobody moves them
  letting_go,  // of these, the blocks without pointers to them
};

// `lock` guards the following.
constinit Process::Heap::Lock lock{LockRank::records};
constinit Phase phase = Phase::holding;
constinit Address* list = nullptr;  // held blocks
constinit std::size_t count = 0;
constinit std::size_t swept = 0;
constinit std::size_t looked_at = 0;    // of the swept, marked blocks, when letting go
constinit std::size_t weight_held = 0;  // since the last sweep
constinit std::size_t blocks_held = 0;  // the same
constinit std::size_t bytes_wanted = kLeastBytes;
constinit std::size_t blocks_wanted = kLeastBlocks;
constinit std::int32_t sweeping_process = 0;
constinit std::size_t bytes_due = 0;  // to be freed before a request may cause a sweep again
// A sorted copy of the first `swept` blocks, with marks, for the sweeper alone. It is copied back
// at the end, so a child forked meanwhile has an unchanged list.
constinit Address* sorted = nullptr;
constinit std::size_t sorted_count = 0;
constinit std::atomic<std::uint32_t> sweeps_done{0};
// Odd while the sweeper looks up words in the page map.
constinit std::atomic<std::uint32_t> lookups{0};
// Whether a sweep failed to read the mappings, and whether the program was told.
enum class Blindness : std::uint8_t { never, found, told };
constinit Blindness blindness = Blindness::never;

// Bytes of all blocks that are held or on their way to the heap.
constinit std::atomic<std::size_t> all_bytes_held{0};

// Shared: only one sweep reads at a time.
constinit PageReader::Memory reader_memory{};

HardenedLinux& platform() noexcept { return Process::heap().space().platform(); }

// The block's place among the sorted ones, or their end.
Address* find_sorted(Address block) noexcept {
  const auto before = [](Address a, Address b) { return (a & ~kPointedTo) < b; };
  Address* const end = sorted + sorted_count;
  Address* const at = std::lower_bound(sorted, end, block, before);
  return at != end && (*at & ~kPointedTo) == block ? at : end;
}

// Reads memory while the program runs, rereads pages written since, and then stops the threads and
// reads the rest.
class Search {
 public:
  // With frames of its own, it runs on a thread of the program and stops all others for the whole
  // time. Without, it runs on the sweeper.
  explicit Search(OwnFrames own_frames) noexcept
      : own_frames_{own_frames},
        reader_{reader_memory, platform().page_size(), !own_frames.are_there()} {}

  // Returns 0, or the error due to which it has not seen everything.
  int run() noexcept {
    std::size_t before = ~std::size_t{0};
    for (int i = 0; reader_.can_watch() && i < kMostReadings; ++i) {
      if (const int error = look_at_all(nullptr); error != 0) return error;
      const bool helps = read_ < before / 4 * 3;
      if (read_ <= kShortReading || (read_ <= kFairReading && !helps)) break;
      before = read_;
    }
    reader_.begin_last();
    for (int i = 0; i < kMostStops; ++i) {
      using Round = StoppedThreads::Round;
      const StoppedThreads stopped{i == 0 ? Round::first : Round::again};
      if (stopped.error() != 0) return stopped.error();
      if (const int error = look_at_all(&stopped); error != 0) return error;
      std::size_t arguments = 0;
      const Address* const first = stopped.arguments_of_sleepers(&arguments);
      look_at(first, arguments);
      if (stopped.have_slept()) break;
    }
    return 0;
  }
  // In the longest reading, which covered everything.
  [[nodiscard]] std::size_t bytes_read() const noexcept { return most_read_; }

 private:
  int look_at_all(const StoppedThreads* stopped) noexcept {
    static MappingLines lines;
    read_ = 0;
    const int error = for_each_data_mapping(
        lines, [&](const DataMapping& mapping) noexcept { look_at_mapping(mapping, stopped); });
    most_read_ = std::max(most_read_, read_);
    return error;
  }
  // Only the main thread's stack is cut to its used part. Other stacks may lie in blocks or beside
  // other memory, and are read whole.
  void look_at_mapping(const DataMapping& mapping, const StoppedThreads* stopped) noexcept {
    Address begin = mapping.begin;
    if (mapping.is_main_stack && stopped == nullptr) return;
    // The lists are large and mostly absent, so skip them as a whole.
    if (is_whole_list(list, mapping) || is_whole_list(sorted, mapping)) return;
    if (mapping.is_main_stack) begin = stopped->used_from(begin, mapping.end, own_frames_.end());
    const bool watched = reader_.watch(mapping.begin, mapping.end);
    const auto is_left_out = [&](Address at, Address end, bool is_elsewhere) noexcept {
      // Older kernels do not tell guards from swapped pages.
      if (is_elsewhere && hardened::is_closed(reinterpret_cast<const void*>(at))) return true;
      return is_list(at) || own_.holds(at) || Process::heap().space().metadata().holds(at) ||
             !hardened::may_be_in_use(at, end);
    };
    own_frames_.read_around(begin, mapping.end, [&](Address from, Address to) noexcept {
      reader_.read(
          from, to, watched, is_left_out,
          [&](const Address* words, std::size_t number) noexcept { look_at(words, number); });
    });
  }
  static bool is_list(Address at) noexcept {
    return at - address_of(list) < kListBytes || at - address_of(sorted) < kListBytes;
  }
  static bool is_whole_list(const Address* blocks, const DataMapping& mapping) noexcept {
    return mapping.begin == address_of(blocks) && mapping.end - mapping.begin <= kListBytes;
  }
  void look_at(const Address* words, std::size_t number) noexcept {
    read_ += number * sizeof *words;
    const Address lowest = sorted[0] & ~kPointedTo;
    const std::uint32_t before = lookups.load(std::memory_order_relaxed);
    lookups.store(before + 1);
    for (std::size_t i = 0; i < number; ++i) {
      const Address word = memory_tags::bare(words[i]);
      if (word >= lowest && word < Address{1} << kAddressBits) look_at(word);
    }
    lookups.store(before + 2, std::memory_order_release);
  }
  // Most words are numbers, or point to blocks in use.
  static void look_at(Address word) noexcept {
    const heap::Bounds block = hardened::bounds_of(reinterpret_cast<const void*>(word));
    if (block.start == nullptr || !block.was_freed()) return;
    Address* const at = find_sorted(address_of(block.start));
    if (at != sorted + sorted_count) *at |= kPointedTo;
  }

  OwnFrames own_frames_;
  PageReader reader_;
  OwnData own_;
  std::size_t read_ = 0;
  std::size_t most_read_ = 0;
};

// Whether the error may be temporary. The blocks stay held until a later sweep, but after 16 delays
// they are freed.
bool may_pass(int error) noexcept {
  constexpr int kMostDelays = 16;
  static constinit int delays = 0;
  const bool is_passing = error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
  delays = is_passing ? delays + 1 : 0;
  return is_passing && delays <= kMostDelays;
}

void sweep(OwnFrames own_frames) noexcept {
  {
    LockGuard guard{lock};
    weight_held = blocks_held = 0;
  }
  memcpy(sorted, list, swept * sizeof *list);
  sorted_count = swept;
  std::sort(sorted, sorted + sorted_count);
  Search search{own_frames};
  const int error = search.run();
  LockGuard guard{lock};
  if (may_pass(error)) {
    phase = Phase::holding;
  } else {
    bytes_wanted = std::max(kLeastBytes, search.bytes_read() / kShare);
    blocks_wanted = std::max(kLeastBlocks, search.bytes_read() / kShare / 64);
    looked_at = 0;
    phase = Phase::letting_go;
    memcpy(list, sorted, swept * sizeof *list);
    // Otherwise everything would be held for ever.
    if (error != 0 && blindness == Blindness::never) blindness = Blindness::found;
  }
  sweeps_done.fetch_add(1);
  os::Linux::futex_wake(&sweeps_done, 0x7fffffff);
}

// The caller has saved all its registers on the stack.
[[gnu::noinline]] void sweep_on_this_stack() noexcept {
  sweep(OwnFrames{address_of(__builtin_frame_address(0))});
}
void sweep_here() noexcept {
  __builtin_unwind_init();
  sweep_on_this_stack();
  // Prevents a tail call, which would drop the saved registers.
  asm volatile("" : : : "memory");
}

// The sweeper opens files in a descriptor table of its own, which neither the program nor its
// children see.
void sweep_on_own_thread(void*) noexcept {
  constexpr long kUnshare = 2;
  raw_syscall(SYS_close_range, 0, ~0U, kUnshare);
  sweep(OwnFrames{0});
}

// --- held blocks ---------------------------------------------------------------------------------

// Requires the lock. Whether `patience` times the threshold has been held since the last sweep.
bool is_much_held(std::size_t patience) noexcept {
  return weight_held / patience >= bytes_wanted || blocks_held / patience >= blocks_wanted;
}

// Requires the lock. True once after a failed sweep: the sweeper itself has no standard error.
bool must_tell() noexcept {
  if (blindness != Blindness::found) return false;
  blindness = Blindness::told;
  return true;
}
void tell() noexcept {
  Message{} << "warning: ALLOD_HARDENED=sweep has stopped: /proc no longer shows this process";
}

// The sweeper is gone, as in the child of a fork.
void forget_sweeper() noexcept {
  if (phase == Phase::sweeping) phase = Phase::holding;
  lookups.store(0);
  Sweeper::reset_after_fork();
  StoppedThreads::reset_in_child();
}
// Requires the lock. Whether a sweep is under way in this process. Detects the child of a fork that
// skipped our handlers.
bool is_sweeping() noexcept {
  if (phase != Phase::sweeping) return false;
  const bool is_owner = sweeping_process == raw_syscall(SYS_getpid);
  if (!is_owner && !os::LinuxGuest::is_here()) forget_sweeper();
  return phase == Phase::sweeping;
}

// Requires the lock. On success the list is frozen, and nobody else begins a sweep. A child of
// vfork never begins one: its threads would end with it, and those of its parent are not its own.
bool begin_sweep(bool is_due) noexcept {
  if (phase != Phase::holding || !is_due || os::LinuxGuest::is_here()) return false;
  phase = Phase::sweeping;
  sweeping_process = static_cast<std::int32_t>(raw_syscall(SYS_getpid));
  swept = count;
  return true;
}

void start_sweep(bool is_late) noexcept {
  if (Sweeper::start(&sweep_on_own_thread, nullptr)) return;
  if (is_late) return sweep_here();
  // The last sweeper does not end, or no thread is available.
  LockGuard guard{lock};
  phase = Phase::holding;
}

// Requires the lock. Takes the next blocks without pointers to them; the others stay.
void take_free(Batch& batch) noexcept {
  for (std::size_t look = 0; look < kLooks && looked_at < swept && !batch.is_full(); ++look) {
    if ((list[looked_at] & kPointedTo) != 0) {
      list[looked_at++] &= ~kPointedTo;
      continue;
    }
    // Each will be checked on its way to the heap.
    __builtin_prefetch(reinterpret_cast<const void*>(list[looked_at]));
    batch.add(list[looked_at]);
    list[looked_at] = list[--swept];
    list[swept] = list[--count];
  }
  if (looked_at == swept) phase = Phase::holding;
}
void hand_over(Batch& batch, LetGo let_go) noexcept {
  std::size_t bytes = 0;
  batch.drain([&](Address block) noexcept { bytes += let_go(reinterpret_cast<void*>(block)); });
  all_bytes_held.fetch_sub(bytes, std::memory_order_relaxed);
}
// Frees some blocks to which a sweep found no pointer.
void let_go_of_some(LetGo let_go) noexcept {
  for (int i = 0; i < kBatches; ++i) {
    Batch batch;
    {
      LockGuard guard{lock};
      if (phase != Phase::letting_go) return;
      take_free(batch);
    }
    hand_over(batch, let_go);
  }
}

// Waits briefly for the next sweep to end, to leave the sweeper a processor.
constexpr std::uint32_t kShortWaitMs = 4;
void wait_a_little(std::uint32_t done) noexcept {
  os::Linux::futex_wait_ms(&sweeps_done, done, kShortWaitMs);
}
// Waits up to a second, since with many freeing threads short waits do not suffice. The sweeper
// needs nothing that these threads hold; if it makes no progress, they continue.
void wait_for_sweeper(std::uint32_t done) noexcept {
  constexpr std::uint32_t kMostMs = 1000;
  for (std::uint32_t waited = 0; waited < kMostMs; waited += kShortWaitMs) {
    if (sweeps_done.load() != done || !Sweeper::is_running()) return;
    wait_a_little(done);
  }
}

// No other fork handler of ours has taken a lock yet.
void lock_for_fork() noexcept {
  if (!os::LinuxGuest::is_here()) wait_for_sweeper_to_end();
  lock.lock_for_fork();
}
void unlock_in_parent() noexcept { lock.unlock_in_parent(); }
void reset_in_child() noexcept {
  forget_sweeper();
  lock.reset_in_child();
}

}  // namespace

void wait_for_sweeper_to_end() noexcept {
  constexpr std::uint32_t kPatienceMs = 100;
  if (!Sweeper::is_gone()) static_cast<void>(Sweeper::wait_until_gone(kPatienceMs));
}

bool start() noexcept {
  if (!PageReader::works()) return false;
  list = static_cast<Address*>(platform().map(kListBytes));
  sorted = static_cast<Address*>(platform().map(kListBytes));
  if (list == nullptr || sorted == nullptr) return false;
  platform().name(list, kListBytes, "allod: held");
  platform().name(sorted, kListBytes, "allod: held");
  os::at_fork(&lock_for_fork, &unlock_in_parent, &reset_in_child);
  return true;
}

bool wait_for_lookups() noexcept {
  constexpr int kMostNaps = 1000;  // of a millisecond
  const std::uint32_t before = lookups.load();
  for (int naps = 0; before % 2 != 0 && lookups.load() == before; ++naps) {
    if (naps == kMostNaps) return false;
    os::Linux::futex_wait_ms(&lookups, before, 1);
  }
  return true;
}

bool hold(Batch& blocks, LetGo let_go) noexcept {
  if (blocks.is_empty()) return true;
  bool begins = false;
  bool is_late = false;
  bool waits = false;
  bool waits_long = false;
  bool tells = false;
  const std::uint32_t done = sweeps_done.load();
  {
    LockGuard guard{lock};
    if (list == nullptr || kMost - count < blocks.count()) return false;
    weight_held += blocks.weight();
    blocks_held += blocks.count();
    bytes_due -= std::min(bytes_due, blocks.bytes());
    all_bytes_held.fetch_add(blocks.bytes(), std::memory_order_relaxed);
    blocks.drain([](Address block) noexcept { list[count++] = block; });
    is_late = is_much_held(kPatience);
    // Otherwise ever more would be held, and each sweep would take longer.
    waits = is_sweeping() && is_much_held(1);
    waits_long = waits && is_much_held(kMostPatience);
    begins = begin_sweep(is_much_held(1));
    tells = must_tell();
  }
  if (tells) tell();
  let_go_of_some(let_go);
  if (begins) start_sweep(is_late);
  if (waits_long) {
    wait_for_sweeper(done);
  } else if (waits) {
    wait_a_little(done);
  }
  return true;
}

Room make_room(std::size_t bytes, bool may_sweep, LetGo let_go) noexcept {
  if (list == nullptr) return Room::none;
  // Requests of an attacker must not cause sweep after sweep.
  const bool is_hopeless = bytes / kShareOfRequest > all_bytes_held.load(std::memory_order_relaxed);
  if (is_hopeless && may_sweep) return Room::none;
  bool has_swept = false;
  bool has_made_some = false;
  for (;;) {
    Batch batch;
    bool begins = false;
    bool waits = false;
    const std::uint32_t done = sweeps_done.load();
    {
      LockGuard guard{lock};
      const bool is_others = is_sweeping();
      begins = begin_sweep(may_sweep && !has_swept && bytes_due == 0 && blocks_held != 0);
      waits = is_others;
      if (phase == Phase::letting_go) {
        take_free(batch);
      } else if (phase == Phase::holding) {
        const bool was_in_vain = !may_sweep || (has_swept && !has_made_some);
        if (was_in_vain) bytes_due = bytes_wanted / kShareOfWanted;
        if (!has_made_some) return Room::none;
        return has_swept ? Room::made_by_sweep : Room::made;
      }
    }
    has_made_some |= !batch.is_empty();
    hand_over(batch, let_go);
    if (begins) sweep_here();
    if (waits) wait_a_little(done);
    has_swept |= begins;
  }
}

}  // namespace allod::sweep
