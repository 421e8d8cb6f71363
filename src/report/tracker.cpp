#include "report/tracker.hpp"

#include <string.h>

#include "report/waiting_blocks.hpp"
#include "settings/options.hpp"

namespace allod {

namespace {

// Each distinct stack is stored once, since blocks far outnumber stacks.
struct NotedStack {
  NotedStack* next;
  Stack stack;
};

struct Record {
  Record* next = nullptr;
  Address block = 0;
  std::size_t bytes = 0;
  std::size_t room = 0;
  bool live = false;
  std::uint32_t allocating_thread = 0;
  std::uint32_t freeing_thread = 0;
  const NotedStack* allocated_at = nullptr;
  const NotedStack* freed_at = nullptr;
};

// Records outlive their blocks, so that a double free finds the first free.
constexpr std::size_t kRecordBuckets = std::size_t{1} << 18;
constexpr std::size_t kStackBuckets = std::size_t{1} << 14;
struct Tables {
  Record* records[kRecordBuckets];
  NotedStack* stacks[kStackBuckets];
  WaitingBlocks waiting;
};
// Null before the first record. Mapped, since in .bss it would be large enough for a huge page,
// which the kernel may populate when a neighbour is touched.
constinit std::atomic<Tables*> tables{nullptr};
// Set once a record could not be made: a block without a record may then be genuine.
constinit std::atomic<bool> records_missing{false};
constinit Process::Heap::Lock records_lock{LockRank::records};

Record*& record_bucket(Tables& in, Address block) noexcept {
  static_assert(kRecordBuckets == std::size_t{1} << (64 - 46));
  return in.records[(block / 8 * kMix) >> 46];
}

void* metadata(std::size_t bytes) noexcept {
  auto& space = Process::heap().space();
  return space.allocate_metadata(bytes);
}

// Lock-free: records are never dropped, and are complete before they are reachable.
Record* find_record(Address block) noexcept {
  Tables* const in = tables.load(std::memory_order_acquire);
  if (in == nullptr) return nullptr;
  Record* record = __atomic_load_n(&record_bucket(*in, block), __ATOMIC_ACQUIRE);
  while (record != nullptr && record->block != block) record = record->next;
  return record;
}

// Requires the lock and a record. Null if metadata is exhausted: a report then lacks a stack.
const NotedStack* note(const Stack& stack) noexcept {
  std::uint64_t hash = stack.depth;
  for (std::uint32_t i = 0; i < stack.depth; ++i) hash = (hash ^ stack.frames[i]) * kMix;
  NotedStack*& bucket = tables.load(std::memory_order_relaxed)->stacks[hash >> 50];
  static_assert(kStackBuckets == std::size_t{1} << (64 - 50));
  const std::size_t used = stack.depth * sizeof stack.frames[0];
  for (NotedStack* known = bucket; known != nullptr; known = known->next) {
    if (known->stack.depth == stack.depth && memcmp(known->stack.frames, stack.frames, used) == 0) {
      return known;
    }
  }
  auto* const known = static_cast<NotedStack*>(metadata(sizeof(NotedStack)));
  if (known == nullptr) return nullptr;
  known->next = bucket;
  known->stack = stack;
  bucket = known;
  return known;
}

// Requires the lock. Null if memory is exhausted.
Tables* find_tables() noexcept {
  Tables* found = tables.load(std::memory_order_relaxed);
  if (found == nullptr) {
    auto& platform = Process::heap().space().platform();
    found = static_cast<Tables*>(platform.map(sizeof(Tables)));
    if (found == nullptr) return nullptr;
    // Hashed: each of a few blocks is on a page of its own.
    platform.avoid_huge(found, sizeof(Tables));
    platform.name(found, sizeof(Tables), "allod: history");
    tables.store(found, std::memory_order_release);
  }
  return found;
}
Record* new_record(Address block) noexcept {
  Tables* const in = find_tables();
  if (in == nullptr) return nullptr;
  auto* const record = static_cast<Record*>(metadata(sizeof(Record)));
  if (record == nullptr) return nullptr;
  Record*& bucket = record_bucket(*in, block);
  *record = {.next = bucket, .block = block};
  __atomic_store_n(&bucket, record, __ATOMIC_RELEASE);
  return record;
}

// Caches the thread id; 0: unknown.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t own_id = 0;
std::uint32_t this_thread() noexcept {
  if (__builtin_expect(own_id == 0, 0)) own_id = Process::heap().space().platform().thread_id();
  return own_id;
}

// Holds the lock and the caller's stack. A signal handler that interrupted a thread with one of our
// locks gets neither, since it must not wait for them or for the loader's lock. It may still change
// the records of its own blocks, as nobody else does, but adds none.
class Turn {
 public:
  Turn() noexcept : has_lock_{!HeldLocks::any()} {
    if (!has_lock_) return;
    capture_stack(stack_);
    records_lock.lock();
  }
  ~Turn() {
    if (has_lock_) records_lock.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void begin(Address block, std::size_t bytes, std::size_t room) const noexcept {
    Record* record = find_record(block);
    if (record == nullptr && has_lock_) record = new_record(block);
    if (record == nullptr) {
      records_missing = true;
      return;
    }
    record->bytes = bytes;
    record->room = room;
    record->live = true;
    record->allocating_thread = this_thread();
    record->allocated_at = stack();
    record->freed_at = nullptr;
  }
  void end(Record& record) const noexcept {
    record.live = false;
    record.freeing_thread = this_thread();
    record.freed_at = stack();
  }

 private:
  [[nodiscard]] const NotedStack* stack() const noexcept {
    return has_lock_ ? note(stack_) : nullptr;
  }

  const bool has_lock_;
  Stack stack_;
};

}  // namespace

void track_allocation(void* block, std::size_t bytes, std::size_t room) noexcept {
  if (block == nullptr) return;
  const Turn turn;
  turn.begin(address_of(block), bytes, room);
}

namespace {

// Whether a caller that claims this size may free or resize the block. If not, `*kind` says why.
// `record` may be null.
bool is_in_use(const Record* record, std::size_t claimed_bytes, heap::MisuseKind* kind) noexcept {
  if (record == nullptr) {
    *kind = heap::MisuseKind::invalid_free;
    return records_missing;
  }
  *kind = record->live ? heap::MisuseKind::size_mismatch : heap::MisuseKind::double_free;
  return record->live && (claimed_bytes == kAnySize || claimed_bytes == record->bytes);
}

void report_misuse(heap::MisuseKind kind, const void* address, std::size_t claimed_bytes) noexcept {
  heap::Misuse misuse = Process::heap().describe(kind, address);
  misuse.claimed_bytes = claimed_bytes;
  const auto tag = Process::heap().space().map().tag_of(address_of(address));
  if (kind == heap::MisuseKind::invalid_free && tag == space::kForeignTag) {
    misuse.kind = heap::MisuseKind::foreign_free;
    if (!settings().heap.report_foreign) return;
  }
  ReportToUser::report(misuse);
}

}  // namespace

bool track_release(void* address, std::size_t claimed_bytes) noexcept {
  if (address == nullptr) return true;
  heap::MisuseKind kind;
  {
    const Turn turn;
    Record* const record = find_record(address_of(address));
    if (is_in_use(record, claimed_bytes, &kind)) {
      if (record != nullptr) turn.end(*record);
      return true;
    }
  }
  report_misuse(kind, address, claimed_bytes);
  return false;
}

void track_end(void* block) noexcept {
  const Turn turn;
  Record* const record = find_record(address_of(block));
  // There may be no live record if another thread was noting it at the fork.
  if (record != nullptr && record->live) turn.end(*record);
}

bool track_resize(void* address) noexcept {
  heap::MisuseKind kind;
  if (is_in_use(find_record(address_of(address)), kAnySize, &kind)) return true;
  report_misuse(kind, address, kAnySize);
  return false;
}

// No lock: the program's own block does not change during the call.
bool track_bounds(const void* block, std::size_t* bytes) noexcept {
  const Record* const record = find_record(address_of(block));
  if (record == nullptr) return true;
  *bytes = __atomic_load_n(&record->bytes, __ATOMIC_RELAXED);
  return __atomic_load_n(&record->live, __ATOMIC_RELAXED);
}

bool find_history(const void* block, History* history, std::size_t* requested) noexcept {
  const Record* const record = find_record(address_of(block));
  if (record == nullptr) return false;
  const auto read = [](const auto& field) noexcept {
    return __atomic_load_n(&field, __ATOMIC_RELAXED);
  };
  const auto stack_of = [](const NotedStack* known) noexcept {
    return known != nullptr ? &known->stack : nullptr;
  };
  *history = {read(record->live), read(record->allocating_thread), read(record->freeing_thread),
              stack_of(read(record->allocated_at)), stack_of(read(record->freed_at))};
  *requested = read(record->bytes);
  return true;
}

namespace {

[[nodiscard]] Extent extent_of(const Record& record) noexcept {
  return {.requested = __atomic_load_n(&record.bytes, __ATOMIC_RELAXED),
          .room = __atomic_load_n(&record.room, __ATOMIC_RELAXED),
          .is_live = __atomic_load_n(&record.live, __ATOMIC_RELAXED)};
}

}  // namespace

bool find_extent(const void* block, Extent* extent) noexcept {
  const Record* const record = find_record(address_of(block));
  if (record == nullptr) return false;
  *extent = extent_of(*record);
  return true;
}

void* next_in_use(RecordCursor* cursor, ChooseBlock wanted) noexcept {
  if (HeldLocks::any()) return nullptr;
  const LockGuard guard{records_lock};
  Tables* const in = tables.load(std::memory_order_relaxed);
  for (; in != nullptr && cursor->bucket < kRecordBuckets; ++cursor->bucket) {
    const Record* record = in->records[cursor->bucket];
    if (cursor->last != nullptr) {
      // New records are added at the front.
      while (record->block != address_of(cursor->last)) record = record->next;
      record = record->next;
      cursor->last = nullptr;
    }
    for (; record != nullptr; record = record->next) {
      auto* const block = reinterpret_cast<void*>(record->block);
      if (!record->live || !wanted(block, extent_of(*record))) continue;
      cursor->last = block;
      return block;
    }
  }
  return nullptr;
}

bool put_waiting(void* block, std::size_t bytes) noexcept {
  if (HeldLocks::any()) return false;
  const LockGuard guard{records_lock};
  Tables* const in = tables.load(std::memory_order_relaxed);
  return in != nullptr && in->waiting.put(block, bytes);
}

void* take_waiting(Waiting which) noexcept {
  if (HeldLocks::any()) return nullptr;
  const LockGuard guard{records_lock};
  Tables* const in = tables.load(std::memory_order_relaxed);
  if (in == nullptr || (which == Waiting::overdue && !in->waiting.is_overdue())) return nullptr;
  return in->waiting.take();
}

void lock_records() noexcept { records_lock.lock_for_fork(); }
void unlock_records() noexcept { records_lock.unlock_in_parent(); }
void reset_records_lock_after_fork() noexcept {
  records_lock.reset_in_child();
  own_id = 0;
}

}  // namespace allod
