#include "tracker.hpp"

#include <string.h>

#include "backtrace.hpp"
#include "options.hpp"
#include "report.hpp"

namespace allod {

namespace {

// Stacks are few and blocks are many, so each stack is kept once.
struct KnownStack {
  KnownStack* next;
  Stack stack;
};

struct Record {
  Record* next;
  Address block;
  std::size_t bytes;
  bool live;
  std::uint32_t allocating_thread;
  std::uint32_t freeing_thread;
  const KnownStack* allocated_at;
  const KnownStack* freed_at;
};

// Records are kept when blocks are freed, so that a second free finds the first.
constexpr std::size_t kRecordBuckets = std::size_t{1} << 18;
constexpr std::size_t kStackBuckets = std::size_t{1} << 14;
constinit Record* record_buckets[kRecordBuckets];
constinit KnownStack* stack_buckets[kStackBuckets];
// There was no memory for a record once: a block without one may be genuine.
constinit bool records_missing = false;
constinit Process::Heap::Lock records_lock{LockRank::records};

constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;

Record*& record_bucket(Address block) noexcept { return record_buckets[(block / 8 * kMix) >> 46]; }
static_assert(kRecordBuckets == std::size_t{1} << (64 - 46));

void* metadata(std::size_t bytes) noexcept {
  auto& space = Process::heap().space();
  return space.allocate_metadata(bytes);
}

Record* find_record(Address block) noexcept {
  Record* record = record_bucket(block);
  while (record != nullptr && record->block != block) record = record->next;
  return record;
}

// Null when there is no metadata: a report then lacks a stack.
const KnownStack* remember(const Stack& stack) noexcept {
  std::uint64_t hash = stack.depth;
  for (std::uint32_t i = 0; i < stack.depth; ++i) hash = (hash ^ stack.frames[i]) * kMix;
  KnownStack*& bucket = stack_buckets[hash >> 50];
  static_assert(kStackBuckets == std::size_t{1} << (64 - 50));
  const std::size_t used = stack.depth * sizeof stack.frames[0];
  for (KnownStack* known = bucket; known != nullptr; known = known->next) {
    if (known->stack.depth == stack.depth && memcmp(known->stack.frames, stack.frames, used) == 0) {
      return known;
    }
  }
  auto* const known = static_cast<KnownStack*>(metadata(sizeof(KnownStack)));
  if (known == nullptr) return nullptr;
  known->next = bucket;
  known->stack = stack;
  bucket = known;
  return known;
}

std::uint32_t this_thread() noexcept { return Process::heap().space().platform().thread_id(); }

void write_event(Text& out, std::string_view what, std::uint32_t thread,
                 const KnownStack* known) noexcept {
  constexpr Stack kUnknown{};
  allod::write_event(out, what, thread, known != nullptr ? known->stack : kUnknown);
}

}  // namespace

void track_allocation(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  Stack stack;
  capture_stack(stack);
  LockGuard guard{records_lock};
  Record* record = find_record(address_of(block));
  if (record == nullptr) {
    record = static_cast<Record*>(metadata(sizeof(Record)));
    if (record == nullptr) {
      records_missing = true;
      return;
    }
    Record*& bucket = record_bucket(address_of(block));
    record->next = bucket;
    record->block = address_of(block);
    // Whoever looks without the lock finds it whole.
    __atomic_store_n(&bucket, record, __ATOMIC_RELEASE);
  }
  record->bytes = bytes;
  record->live = true;
  record->allocating_thread = this_thread();
  record->allocated_at = remember(stack);
  record->freed_at = nullptr;
}

namespace {

// May the block be freed, or resized, by a caller that claims this size? If not, `*kind` says why.
// With the lock held; `record` may be null.
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
  Stack stack;
  capture_stack(stack);
  heap::MisuseKind kind;
  {
    LockGuard guard{records_lock};
    Record* const record = find_record(address_of(address));
    if (is_in_use(record, claimed_bytes, &kind)) {
      if (record == nullptr) return true;
      record->live = false;
      record->freeing_thread = this_thread();
      record->freed_at = remember(stack);
      return true;
    }
  }
  report_misuse(kind, address, claimed_bytes);
  return false;
}

void track_end(void* block) noexcept {
  Stack stack;
  capture_stack(stack);
  LockGuard guard{records_lock};
  Record* const record = find_record(address_of(block));
  // Another thread may have been about to note it when it forked this process.
  if (record == nullptr || !record->live) return;
  record->live = false;
  record->freeing_thread = this_thread();
  record->freed_at = remember(stack);
}

bool track_resize(void* address) noexcept {
  heap::MisuseKind kind;
  {
    LockGuard guard{records_lock};
    if (is_in_use(find_record(address_of(address)), kAnySize, &kind)) return true;
  }
  report_misuse(kind, address, kAnySize);
  return false;
}

// Records are never dropped, and the program's own block does not change while it asks.
bool track_bounds(const void* block, std::size_t* bytes) noexcept {
  const Address at = address_of(block);
  const Record* record = __atomic_load_n(&record_bucket(at), __ATOMIC_ACQUIRE);
  while (record != nullptr && record->block != at) record = record->next;
  if (record == nullptr) return true;
  *bytes = __atomic_load_n(&record->bytes, __ATOMIC_RELAXED);
  return __atomic_load_n(&record->live, __ATOMIC_RELAXED);
}

void write_origin(Text& out, const void* block) noexcept {
  Record copy{};
  {
    LockGuard guard{records_lock};
    const Record* const record = find_record(address_of(block));
    if (record == nullptr) return;
    copy = *record;
  }
  out << ", requested with " << std::uint64_t{copy.bytes} << " bytes";
  write_event(out, "allocated", copy.allocating_thread, copy.allocated_at);
}

void write_history(Text& out, const void* block) noexcept {
  Stack stack;
  capture_stack(stack);
  bool known = false;
  Record copy{};
  if (block != nullptr) {
    LockGuard guard{records_lock};
    const Record* const record = find_record(address_of(block));
    known = record != nullptr;
    if (known) copy = *record;
  }
  if (known) {
    out << "\nallod:   " << (copy.live ? "in use" : "free") << ", requested with "
        << std::uint64_t{copy.bytes} << " bytes";
    write_event(out, "allocated", copy.allocating_thread, copy.allocated_at);
    if (!copy.live) write_event(out, "freed", copy.freeing_thread, copy.freed_at);
  }
  allod::write_event(out, "this call", this_thread(), stack);
}

void lock_records() noexcept { records_lock.lock_for_fork(); }
void unlock_records() noexcept { records_lock.unlock_in_parent(); }
void reset_records_lock_after_fork() noexcept { records_lock.reset_in_child(); }

}  // namespace allod
