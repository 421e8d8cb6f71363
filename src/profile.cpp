#include "profile.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "backtrace.hpp"
#include "closed_files.hpp"
#include "exponential.hpp"
#include "hardened.hpp"
#include "probe.hpp"
#include "profile_file.hpp"

namespace allod {

namespace {

using Sum = allod_profile_sum_t;

Process::Heap& engine() noexcept { return Process::heap(); }
std::uint64_t now_ms() noexcept { return engine().space().platform().now_ms(); }

// What the samples of one call stack add up to. Kept for good.
struct KnownStack {
  KnownStack* next_in_bucket;
  std::atomic<KnownStack*> next;  // the one that was met after it
  std::uint64_t id;
  std::uint64_t hash;
  Sum live;
  Sum total;
  Sum before_change;      // `live` at the last peak, if it has changed since
  std::uint64_t changed;  // the number of the last peak when `live` changed
  std::uint64_t live_samples;
  std::uint64_t total_samples;
  std::uint64_t freed_samples;
  std::uint64_t births_ms;  // of the live ones, summed up
  std::uint64_t lives_ms;   // of the freed ones, summed up
  Sum leaked_directly;      // when leaks were looked for last
  Sum leaked;
  bool is_complete;  // its code is no more: no sample has it any more
  std::uint32_t depth;
  std::uintptr_t frames[1];  // as many as there are
};

struct Sample {
  Sample* next;
  Address block;
  KnownStack* stack;
  std::size_t bytes;
  std::size_t requested;
  std::uint64_t count_x256;  // blocks that it stands for
  std::uint64_t birth_ms;
  std::uint64_t number;
  std::uint32_t thread;
};

// What a sample stands for, times 256 like all sums here. The same when it comes and when it goes.
Sum weight_of(const Sample& sample) noexcept {
  const std::uint64_t count = sample.count_x256;
  return {count, sample.bytes * count, sample.requested * count};
}
Sum told(const Sum& sum) noexcept {
  const auto rounded = [](std::uint64_t n) { return (n + 128) / 256; };
  return {rounded(sum.blocks), rounded(sum.bytes), rounded(sum.requested)};
}
void add(Sum& sum, const Sum& more) noexcept {
  sum.blocks += more.blocks;
  sum.bytes += more.bytes;
  sum.requested += more.requested;
}
void subtract(Sum& sum, const Sum& less) noexcept {
  sum.blocks -= less.blocks;
  sum.bytes -= less.bytes;
  sum.requested -= less.requested;
}

// A table of lists that doubles when it is full.
template <class Entry>
struct Buckets {
  Entry** lists = nullptr;
  unsigned shift = 64;
  std::size_t entries = 0;

  [[nodiscard]] Entry*& at(std::uint64_t hash) noexcept { return lists[hash >> shift]; }
  [[nodiscard]] std::size_t count() const noexcept { return std::size_t{1} << (64 - shift); }
  // False when there is no room for any entry.
  template <class NextOf, class HashOf>
  [[nodiscard]] bool make_room(NextOf next_of, HashOf hash_of) noexcept {
    if (lists != nullptr && entries < 2 * count()) return true;
    Buckets larger;
    larger.shift = lists == nullptr ? 64 - 10 : shift - 1;
    larger.entries = entries;
    const std::size_t bytes = larger.count() * sizeof(Entry*);
    larger.lists = static_cast<Entry**>(engine().space().allocate_metadata(bytes));
    if (larger.lists == nullptr) return lists != nullptr;
    for (std::size_t i = 0; lists != nullptr && i < count(); ++i) {
      for (Entry *entry = lists[i], *next = nullptr; entry != nullptr; entry = next) {
        next = next_of(*entry);
        Entry*& list = larger.at(hash_of(*entry));
        next_of(*entry) = list;
        list = entry;
      }
    }
    if (lists != nullptr) engine().space().metadata().free(lists, count() * sizeof(Entry*));
    *this = larger;
    return true;
  }
};

constinit struct Book {
  Process::Heap::Lock lock{LockRank::samples};
  Buckets<Sample> samples;
  Buckets<KnownStack> stacks;
  Sample* spare = nullptr;  // records that are free
  std::atomic<KnownStack*> first{nullptr};
  KnownStack* last = nullptr;
  std::uint64_t stack_count = 0;
  Sum live{};
  Sum peak{};
  Sum total{};
  std::uint64_t peaks = 0;  // how often `live` was larger than ever
  std::uint64_t live_samples = 0;
  std::uint64_t total_samples = 0;
  std::uint64_t lost_samples = 0;
  std::uint64_t samples_ever = 0;
  std::uint64_t forgiven = 0;  // so many of them do not leak
  std::uint64_t since_ms = 0;
  std::uint64_t peak_ms = 0;
  Sum lifetimes[ALLOD_PROFILE_LIFETIMES] = {};
} book;

// A signal handler may have interrupted its thread here: it takes no samples, and what it frees
// waits in a list through the blocks themselves, which are nobody's until then.
[[gnu::tls_model("initial-exec")]] thread_local constinit bool busy = false;
constinit std::atomic<void*> late_frees{nullptr};

class Busy {
 public:
  Busy() noexcept {
    busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Busy() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    busy = false;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

// What can be read of a block, behind which there may be a guard; 0: it has been freed, and waits.
std::size_t readable_bytes(const Sample& sample) noexcept {
  const auto* const block = reinterpret_cast<const void*>(sample.block);
  if constexpr (Policy::kBlockStates) return hardened::readable_bytes(block);
  return Guards::holds(block) ? sample.requested : sample.bytes;
}

std::uint64_t hash_of_block(Address block) noexcept { return block / 8 * kMix; }
Sample*& next_sample(Sample& sample) noexcept { return sample.next; }
KnownStack*& next_stack(KnownStack& stack) noexcept { return stack.next_in_bucket; }

// --- under the lock -----------------------------------------------------------------

KnownStack* remember(const Stack& stack) noexcept {
  std::uint64_t hash = stack.depth;
  for (std::uint32_t i = 0; i < stack.depth; ++i) {
    hash = (hash ^ stack.frames[i]) * kMix;
    hash ^= hash >> 29;
  }
  hash *= kMix;
  if (!book.stacks.make_room(next_stack, [](KnownStack& known) { return known.hash; })) {
    return nullptr;
  }
  const std::size_t used = stack.depth * sizeof stack.frames[0];
  for (KnownStack* known = book.stacks.at(hash); known != nullptr; known = known->next_in_bucket) {
    if (known->hash == hash && known->depth == stack.depth && !known->is_complete &&
        memcmp(known->frames, stack.frames, used) == 0) {
      return known;
    }
  }
  auto* const known = static_cast<KnownStack*>(
      engine().space().allocate_metadata(offsetof(KnownStack, frames) + used));
  if (known == nullptr) return nullptr;
  known->id = ++book.stack_count;
  known->hash = hash;
  known->changed = book.peaks;
  known->depth = stack.depth;
  memcpy(known->frames, stack.frames, used);
  KnownStack*& list = book.stacks.at(hash);
  known->next_in_bucket = list;
  list = known;
  ++book.stacks.entries;
  (book.last == nullptr ? book.first : book.last->next).store(known, std::memory_order_release);
  book.last = known;
  return known;
}

// `live` of the stack is about to change.
void before_change(KnownStack& stack) noexcept {
  if (stack.changed == book.peaks) return;
  stack.before_change = stack.live;
  stack.changed = book.peaks;
}

Sum peak_of(const KnownStack& stack) noexcept {
  return stack.changed == book.peaks ? stack.before_change : stack.live;
}

Sample* new_sample(KnownStack* stack, Address block) noexcept {
  const auto hash = [](Sample& sample) { return hash_of_block(sample.block); };
  if (stack == nullptr || !book.samples.make_room(next_sample, hash)) return nullptr;
  Sample* sample = book.spare;
  if (sample != nullptr) {
    book.spare = sample->next;
  } else {
    sample = static_cast<Sample*>(engine().space().allocate_metadata(sizeof(Sample)));
    if (sample == nullptr) return nullptr;
  }
  sample->block = block;
  sample->stack = stack;
  Sample*& list = book.samples.at(hash_of_block(block));
  sample->next = list;
  list = sample;
  ++book.samples.entries;
  return sample;
}

// Is more live than ever before?
bool count_in(const Sample& sample) noexcept {
  KnownStack& stack = *sample.stack;
  const Sum weight = weight_of(sample);
  before_change(stack);
  add(stack.live, weight);
  add(stack.total, weight);
  ++stack.live_samples;
  ++stack.total_samples;
  stack.births_ms += sample.birth_ms;
  add(book.live, weight);
  add(book.total, weight);
  ++book.live_samples;
  ++book.total_samples;
  if (book.live.bytes <= book.peak.bytes) return false;
  book.peak = book.live;
  book.peak_ms = sample.birth_ms;
  ++book.peaks;
  return true;
}

void count_out(const Sample& sample, std::uint64_t now) noexcept {
  KnownStack& stack = *sample.stack;
  const Sum weight = weight_of(sample);
  const std::uint64_t life = now > sample.birth_ms ? now - sample.birth_ms : 0;
  before_change(stack);
  subtract(stack.live, weight);
  --stack.live_samples;
  ++stack.freed_samples;
  stack.births_ms -= sample.birth_ms;
  stack.lives_ms += life;
  subtract(book.live, weight);
  --book.live_samples;
  const unsigned place = life == 0 ? 0 : highest_bit(life) + 1;
  add(book.lifetimes[place < ALLOD_PROFILE_LIFETIMES ? place : ALLOD_PROFILE_LIFETIMES - 1],
      weight);
}

void forget_locked(void* block, std::uint64_t now) noexcept {
  if (book.samples.lists == nullptr) return;
  Sample** link = &book.samples.at(hash_of_block(address_of(block)));
  while (*link != nullptr && (*link)->block != address_of(block)) link = &(*link)->next;
  Sample* const sample = *link;
  if (sample == nullptr) return;
  *link = sample->next;
  --book.samples.entries;
  count_out(*sample, now);
  ALLOD_PROBE("sample_freed", address_of(block), sample->requested, told(weight_of(*sample)).bytes,
              now - sample->birth_ms);
  sample->next = book.spare;
  book.spare = sample;
}

// How many blocks of `bytes` one sample among them stands for.
std::uint64_t count_x256(std::size_t bytes, std::size_t interval) noexcept {
  if (interval <= 1) return 256;
  const double likely = chance_within(static_cast<double>(bytes) / static_cast<double>(interval));
  return (static_cast<std::uint64_t>(512 / likely) + 1) / 2;
}

}  // namespace

// --- what the heap asks -----------------------------------------------------------------

void* Profile::allocate(std::size_t size, std::size_t alignment, std::size_t bytes,
                        bool* zero) noexcept {
  if (busy) return nullptr;
  auto* const heap = static_cast<Process::Heap::HeapDomain*>(home_.load(std::memory_order_acquire));
  if (heap == nullptr) return nullptr;
  void* block = nullptr;
  heap::HeapRequest request{.size = size, .alignment = alignment};
  {
    Busy guard;
    block = engine().allocate_in(Process::own_domain(), *heap, request);
  }
  if (block == nullptr) return nullptr;
  if (zero != nullptr) *zero = request.zero;
  note(block, size, bytes);
  return block;
}

[[gnu::noinline]] void Profile::note(void* block, std::size_t size, std::size_t bytes) noexcept {
  const std::size_t interval = interval_.load(std::memory_order_relaxed);
  if (busy || interval == 0) return;
  Busy guard;
  Stack stack;
  capture_stack(stack);
  leave_out_own(stack);
  const std::uint64_t count = count_x256(bytes, interval);
  const std::uint32_t thread = engine().space().platform().thread_id();
  const std::uint64_t now = now_ms();
  std::uint64_t peak = 0;
  std::uint64_t stands_for = 0;
  {
    LockGuard lock{book.lock};
    Sample* const sample = new_sample(remember(stack), address_of(block));
    if (sample == nullptr) {
      ++book.lost_samples;
      return;
    }
    sample->bytes = bytes;
    sample->requested = size;
    sample->count_x256 = count;
    sample->birth_ms = now;
    sample->thread = thread;
    sample->number = ++book.samples_ever;
    if (count_in(*sample)) peak = book.peak.bytes / 256;
    stands_for = told(weight_of(*sample)).bytes;
  }
  ALLOD_PROBE("sample_allocated", address_of(block), size, stands_for, stack.depth);
  profile::write_due_files(peak);
}

bool Profile::is_busy() noexcept { return busy; }

bool Profile::forget(void* block) noexcept {
  if (busy) {
    if constexpr (Policy::kBlockStates) {
      if (!hardened::lend(block)) return false;  // and it is lost
    }
    void* next = late_frees.load(std::memory_order_relaxed);
    do {
      memcpy(block, &next, sizeof next);
    } while (!late_frees.compare_exchange_weak(next, block));
    return false;
  }
  {
    Busy guard;
    const std::uint64_t now = now_ms();
    LockGuard lock{book.lock};
    forget_locked(block, now);
  }
  if (__builtin_expect(late_frees.load(std::memory_order_relaxed) != nullptr, 0)) {
    for (void *late = late_frees.exchange(nullptr), *next = nullptr; late != nullptr; late = next) {
      memcpy(&next, late, sizeof next);
      memset(late, 0, sizeof next);
      Process::release(late);
    }
  }
  return true;
}

void Profile::give_back(space::Tag tag, void* block) noexcept {
  Busy guard;
  engine().release_to_heap(Process::own_domain(), tag, block);
}

// Not in the midst of a malloc, where it could come while another thread forks.
bool Profile::prepare() noexcept {
  Process::ensure_started();
  if (home_.load(std::memory_order_acquire) != nullptr) return true;
  auto* const heap = engine().create_heap(nullptr);
  if (heap == nullptr) return false;
  std::uint32_t none = ~0U;
  if (owner_.compare_exchange_strong(none, heap->id())) {
    book.since_ms = now_ms();
    home_.store(heap, std::memory_order_release);
  } else {
    engine().delete_heap(*heap);
  }
  return true;
}

void Profile::start_with_process(std::size_t interval) noexcept {
  period_.fetch_add(1, std::memory_order_relaxed);
  used_.store(true, std::memory_order_relaxed);
  interval_.store(interval == 0 ? profile::kUsualInterval : interval, std::memory_order_release);
}

bool Profile::start(std::size_t interval) noexcept {
  if (!prepare()) return false;
  start_with_process(interval);
  Process::switch_counting(true);
  return true;
}

void Profile::stop() noexcept {
  interval_.store(0, std::memory_order_relaxed);
  Process::switch_counting(Samples::is_on());
}

// --- what is asked of it -----------------------------------------------------------------

namespace profile {

void reset() noexcept {
  const std::uint64_t now = now_ms();
  LockGuard lock{book.lock};
  ++book.peaks;
  book.peak = book.live;
  book.total = {};
  book.peak_ms = book.since_ms = now;
  book.total_samples = book.lost_samples = 0;
  for (Sum& lifetime : book.lifetimes) lifetime = {};
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    stack->total = {};
    stack->total_samples = stack->freed_samples = stack->lives_ms = 0;
  }
}

void summarise(allod_profile_summary_t& summary) noexcept {
  summary = {};
  summary.interval = Profile::interval();
  const std::uint64_t now = now_ms();
  LockGuard lock{book.lock};
  summary.live = told(book.live);
  summary.peak = told(book.peak);
  summary.total = told(book.total);
  summary.stacks = book.stack_count;
  summary.live_samples = book.live_samples;
  summary.total_samples = book.total_samples;
  summary.lost_samples = book.lost_samples;
  summary.since_ms = book.since_ms == 0 ? 0 : now - book.since_ms;
  summary.peak_age_ms = now - book.peak_ms;
  for (int i = 0; i < ALLOD_PROFILE_LIFETIMES; ++i) {
    summary.lifetimes[i] = told(book.lifetimes[i]);
  }
}

namespace {

// With the lock held.
allod_profile_stack_t describe(const KnownStack& stack, std::uint64_t now) noexcept {
  const std::uint64_t live = stack.live_samples;
  return {.id = stack.id,
          .frames = stack.frames,
          .depth = stack.depth,
          .live = told(stack.live),
          .peak = told(peak_of(stack)),
          .total = told(stack.total),
          .live_samples = live,
          .total_samples = stack.total_samples,
          .freed_samples = stack.freed_samples,
          .mean_age_ms = live == 0 ? 0 : now - stack.births_ms / live,
          .mean_lifetime_ms = stack.freed_samples == 0 ? 0 : stack.lives_ms / stack.freed_samples};
}

}  // namespace

int visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept {
  constexpr std::size_t kMost = 64;
  // Stacks stay, and so do their frames.
  for (KnownStack* stack = book.first.load(std::memory_order_acquire); stack != nullptr;) {
    allod_profile_stack_t seen[kMost];
    std::size_t count = 0;
    const std::uint64_t now = now_ms();
    {
      LockGuard lock{book.lock};
      for (; stack != nullptr && count < kMost; stack = stack->next.load()) {
        seen[count++] = describe(*stack, now);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (const int result = visit(&seen[i], context)) return result;
    }
  }
  return 0;
}

int visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept {
  // Copied in portions: the table may double between two of them, and lists come to other
  // places. They are taken by their share of all hashes, which stays.
  constexpr std::uint64_t kParts = 1024;
  constexpr std::uint64_t kPartsAtOnce = 32;
  constexpr std::size_t kMost = 64;
  const std::uint64_t now = now_ms();
  std::size_t done = 0;  // of the next part
  for (std::uint64_t part = 0; part < kParts;) {
    allod_profile_block_t seen[kMost];
    std::size_t count = 0;
    {
      LockGuard lock{book.lock};
      if (book.samples.lists == nullptr) return 0;
      const std::size_t lists = book.samples.count() / kParts;
      const std::uint64_t end = part + kPartsAtOnce < kParts ? part + kPartsAtOnce : kParts;
      while (part < end && count < kMost) {
        std::size_t passed = 0;
        for (std::size_t i = 0; i < lists && count < kMost; ++i) {
          Sample* sample = book.samples.lists[part * lists + i];
          for (; sample != nullptr && count < kMost; sample = sample->next) {
            if (passed++ < done) continue;
            seen[count++] = {reinterpret_cast<const void*>(sample->block),
                             sample->bytes,
                             sample->requested,
                             sample->stack->id,
                             sample->count_x256,
                             now > sample->birth_ms ? now - sample->birth_ms : 0,
                             sample->thread};
          }
        }
        // Perhaps there are more in the part.
        done = count == kMost ? passed : 0;
        if (done == 0) ++part;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (const int result = visit(&seen[i], context)) return result;
    }
  }
  return 0;
}

std::uint64_t end_stacks_in(Address begin, Address end, bool is_known) noexcept {
  Busy guard;
  LockGuard lock{book.lock};
  if (is_known) return book.stack_count;
  bool is_any = false;
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    const bool is_there = std::any_of(stack->frames, stack->frames + stack->depth,
                                      [&](Address at) { return at >= begin && at < end; });
    stack->is_complete = stack->is_complete || is_there;
    is_any = is_any || is_there;
  }
  return is_any ? book.stack_count : 0;
}

void forgive() noexcept {
  LockGuard lock{book.lock};
  book.forgiven = book.samples_ever;
}

AtRest::AtRest() noexcept {
  busy = true;
  book.lock.lock();
}
AtRest::~AtRest() {
  book.lock.unlock();
  busy = false;
}
std::size_t AtRest::count() const noexcept { return book.samples.entries; }
void AtRest::list(Suspect* suspects) const noexcept {
  for (std::size_t i = 0; book.samples.lists != nullptr && i < book.samples.count(); ++i) {
    for (Sample* sample = book.samples.lists[i]; sample != nullptr; sample = sample->next) {
      const std::size_t bytes = readable_bytes(*sample);
      *suspects++ = {.begin = sample->block,
                     .end = sample->block + bytes,
                     .sample = sample,
                     .leak = bytes != 0 ? Suspect::Leak::direct : Suspect::Leak::none,
                     .is_new = sample->number > book.forgiven};
    }
  }
}
void AtRest::note(const Suspect* suspects, std::size_t count) noexcept {
  for (KnownStack* stack = book.first.load(); stack != nullptr; stack = stack->next.load()) {
    stack->leaked_directly = stack->leaked = {};
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (suspects[i].leak == Suspect::Leak::none) continue;
    const Sample& sample = *static_cast<const Sample*>(suspects[i].sample);
    add(sample.stack->leaked, weight_of(sample));
    if (suspects[i].leak == Suspect::Leak::direct) {
      add(sample.stack->leaked_directly, weight_of(sample));
    }
  }
}

int visit_leaks(allod_profile_stack_visit_t visit, void* context) noexcept {
  for (KnownStack* stack = book.first.load(std::memory_order_acquire); stack != nullptr;
       stack = stack->next.load(std::memory_order_acquire)) {
    if (stack->leaked.blocks == 0) continue;
    const allod_profile_stack_t leak{.id = stack->id,
                                     .frames = stack->frames,
                                     .depth = stack->depth,
                                     .live = told(stack->leaked_directly),
                                     .peak = {},
                                     .total = told(stack->leaked),
                                     .live_samples = 0,
                                     .total_samples = 0,
                                     .freed_samples = 0,
                                     .mean_age_ms = 0,
                                     .mean_lifetime_ms = 0};
    if (const int result = visit(&leak, context)) return result;
  }
  return 0;
}

void show_leaks(Text& out) noexcept {
  const auto show = [](const allod_profile_stack_t* leak, void* context) {
    Text& text = *static_cast<Text*>(context);
    text << "\nallod:   " << leak->total.requested << " bytes in " << leak->total.blocks
         << " blocks" << (leak->live.blocks == 0 ? ", reached from other leaks" : "")
         << ", allocated at:";
    Stack stack;
    stack.depth = leak->depth < Stack::kDepth ? static_cast<std::uint32_t>(leak->depth)
                                              : static_cast<std::uint32_t>(Stack::kDepth);
    memcpy(stack.frames, leak->frames, stack.depth * sizeof stack.frames[0]);
    allod::write_stack(text, stack, &find_closed_place, leak->id);
    return 0;
  };
  static_cast<void>(visit_leaks(show, &out));
}

void lock() noexcept { book.lock.lock_for_fork(); }
void unlock() noexcept { book.lock.unlock_in_parent(); }
void reset_lock_after_fork() noexcept { book.lock.reset_in_child(); }

}  // namespace profile

}  // namespace allod

extern "C" {

int allod_profile_start(size_t interval) noexcept {
  return allod::Profile::start(interval) ? 0 : ENOMEM;
}
void allod_profile_stop() noexcept { allod::Profile::stop(); }
size_t allod_profile_interval() noexcept { return allod::Profile::interval(); }
void allod_profile_reset() noexcept { allod::profile::reset(); }
int allod_profile_visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept {
  return allod::profile::visit_stacks(visit, context);
}
int allod_profile_visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept {
  return allod::profile::visit_blocks(visit, context);
}
int allod_profile_visit_classes(allod_profile_class_visit_t visit, void* context) noexcept {
  return allod::profile::visit_classes(visit, context);
}
int allod_profile_summary_get(allod_profile_summary_t* summary, size_t size) noexcept {
  if (summary == nullptr || size != sizeof *summary) return EINVAL;
  allod::profile::summarise(*summary);
  return 0;
}
void allod_profile_write(allod_write_t write, void* context) noexcept {
  allod::Text out{write, context};
  allod::profile::write(out);
}

}  // extern "C"
