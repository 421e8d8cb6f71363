#include "guards/guards.hpp"

#include <string.h>

#include "allod/base/random.hpp"
#include "instance/process.hpp"
#include "unwind/backtrace.hpp"

namespace allod {

using heap::Misuse;
using heap::MisuseKind;

struct Guards::Slot {
  std::atomic<State> state;
  std::uint32_t allocating_thread;
  std::uint32_t freeing_thread;
  std::atomic<std::uint64_t> freed_as;  // the number of earlier frees
  // Not an address, which a leak search would take for a pointer.
  std::atomic<std::size_t> offset;  // of the block in its page
  std::size_t bytes;
  Stack allocated_at;
  Stack freed_at;

  [[nodiscard]] Address block() const noexcept { return page_of(*this) + offset; }
};

namespace {

constexpr unsigned char kFiller = 0xa5;

os::Linux& platform() noexcept { return Process::heap().space().platform(); }

bool protect(Address from, std::size_t bytes, int protection) noexcept {
  return raw_syscall(SYS_mprotect, static_cast<long>(from), static_cast<long>(bytes), protection) ==
         0;
}

// Frames per stack, with those of this library. Each costs thousands of instructions.
constexpr std::uint32_t kFrames = 16;

// Prevents unwinding in a signal handler that interrupts the unwinder.
[[gnu::tls_model("initial-exec")]] thread_local constinit bool unwinding = false;

[[gnu::noinline]] void note_stack(Stack& stack) noexcept {
  stack.depth = 0;
  if (unwinding) return;
  unwinding = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  capture_stack(stack, kFrames);
  leave_out_own(stack);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  unwinding = false;
}

// The filler starts behind these bytes. A small sample of the profile may keep one word in its
// block when it cannot be freed at once.
std::size_t used_bytes(std::size_t bytes) noexcept {
  return bytes < sizeof(void*) ? sizeof(void*) : bytes;
}

bool is_filler(Address from, Address to) noexcept {
  for (; from != to; ++from) {
    if (*reinterpret_cast<const volatile unsigned char*>(from) != kFiller) return false;
  }
  return true;
}

}  // namespace

std::size_t Guards::largest() noexcept { return platform().page_size(); }

// Guards and block pages alternate; both ends are guards.
void Guards::prepare() noexcept {
  Process::ensure_started();
  if (base_.load(std::memory_order_relaxed) != 0) return;
  const std::size_t page = platform().page_size();
  const std::size_t bytes = (2 * std::size_t{wanted_slots_} + 1) * page;
  const std::size_t record_bytes = align_up(wanted_slots_ * sizeof(Slot), page);
  void* const records = platform().map(record_bytes);
  void* const pages = records == nullptr ? nullptr : platform().reserve(bytes, page);
  if (pages == nullptr) {
    if (records != nullptr) platform().unmap(records, record_bytes);
    return GuardedSamples::choose_period(0);
  }
  platform().name(records, record_bytes, "allod: guard records");
  platform().name(pages, bytes, "allod: guarded blocks");
  slots_ = static_cast<Slot*>(records);
  slot_count_ = wanted_slots_;
  page_ = page;
  bytes_ = bytes;
  base_.store(address_of(pages), std::memory_order_release);
}

Address Guards::page_of(const Slot& slot) noexcept {
  const auto index = static_cast<std::size_t>(&slot - slots_);
  return base_.load(std::memory_order_relaxed) + (2 * index + 1) * page_;
}

Guards::Slot* Guards::slot_at(const void* address) noexcept {
  const std::size_t number = (address_of(address) - base_.load(std::memory_order_relaxed)) / page_;
  return number % 2 == 1 ? &slots_[number / 2] : nullptr;
}

// For a guard: the slot of the nearer block.
Guards::Slot* Guards::slot_near(const void* address) noexcept {
  if (Slot* const here = slot_at(address)) return here;
  const std::size_t offset = address_of(address) - base_.load(std::memory_order_relaxed);
  const std::size_t behind = offset / page_ / 2;  // the page behind the guard
  Slot* const after = behind < slot_count_ ? &slots_[behind] : nullptr;
  Slot* const before = behind > 0 ? &slots_[behind - 1] : nullptr;
  const auto was_used = [](const Slot* slot) {
    return slot != nullptr && slot->state.load(std::memory_order_acquire) != State::unused;
  };
  const bool is_nearer_to_the_next = offset % page_ >= page_ / 2;
  Slot* const nearer = is_nearer_to_the_next ? after : before;
  return was_used(nearer) ? nearer : is_nearer_to_the_next ? before : after;
}

// Pages are used in order. Null if none was used.
const Guards::Slot* Guards::last_used_before(const Slot* slot) noexcept {
  while (slot != slots_) {
    --slot;
    if (slot->state.load(std::memory_order_acquire) != State::unused) return slot;
  }
  return nullptr;
}

// Prefers a page that was never used, else the one freed longest ago.
Guards::Slot* Guards::claim() noexcept {
  constexpr int kTries = 4;  // lost races
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Slot* best = nullptr;
    State seen = State::busy;
    for (std::uint32_t i = 0; i < slot_count_; ++i) {
      Slot& slot = slots_[i];
      const State state = slot.state.load(std::memory_order_acquire);
      if (state != State::unused && state != State::freed) continue;
      if (best != nullptr && state == State::freed && slot.freed_as >= best->freed_as) continue;
      best = &slot;
      seen = state;
      if (state == State::unused) break;
    }
    if (best == nullptr) return nullptr;
    if (best->state.compare_exchange_strong(seen, State::busy, std::memory_order_acquire)) {
      return best;
    }
  }
  return nullptr;
}

void* Guards::allocate(std::size_t size, std::size_t alignment) noexcept {
  if (base_.load(std::memory_order_acquire) == 0 || unwinding) return nullptr;
  const std::size_t least = size <= 8 ? 8 : 16;
  if (alignment < least) alignment = least;
  if (size > page_ || alignment > page_) return nullptr;
  Slot* const slot = claim();
  if (slot == nullptr) return nullptr;
  const Address page = page_of(*slot);
  if (!protect(page, page_, PROT_READ | PROT_WRITE)) {
    slot->freed_as = frees_.fetch_add(1, std::memory_order_relaxed);
    slot->state.store(State::freed, std::memory_order_release);
    return nullptr;
  }
  const std::size_t used = used_bytes(size);
  const bool at_start = (random::word() >> 63) != 0;
  slot->offset = at_start ? 0 : align_down(page_ - used, alignment);
  const Address block = page + slot->offset;
  slot->bytes = size;
  memset(reinterpret_cast<void*>(page), kFiller, block - page);
  memset(reinterpret_cast<void*>(block + used), kFiller, page + page_ - block - used);
  // A purge may have failed and left data.
  memset(reinterpret_cast<void*>(block), 0, used);
  slot->allocating_thread = platform().thread_id();
  note_stack(slot->allocated_at);
  slot->freed_at.depth = 0;
  slot->state.store(State::live, std::memory_order_release);
  return reinterpret_cast<void*>(block);
}

void Guards::release(void* address) noexcept {
  Slot* const slot = slot_at(address);
  State state = State::live;
  if (slot == nullptr || slot->block() != address_of(address) ||
      !slot->state.compare_exchange_strong(state, State::busy, std::memory_order_acquire)) {
    return report_not_in_use(address, slot);
  }
  check_surroundings(*slot);
  slot->freeing_thread = platform().thread_id();
  note_stack(slot->freed_at);
  // The page is closed first, so that no other thread writes to it after the purge. If the kernel
  // refuses to split the mapping, the page stays open but empty.
  const Address page = page_of(*slot);
  static_cast<void>(protect(page, page_, PROT_NONE));
  static_cast<void>(platform().purge(reinterpret_cast<void*>(page), page_));
  slot->freed_as = frees_.fetch_add(1, std::memory_order_relaxed);
  slot->state.store(State::freed, std::memory_order_release);
}

bool Guards::inspect(const void* address, std::size_t* bytes) noexcept {
  const Slot* const slot = slot_at(address);
  if (slot != nullptr && slot->block() == address_of(address) &&
      slot->state.load(std::memory_order_acquire) == State::live) {
    *bytes = slot->bytes;
    return true;
  }
  report_not_in_use(address, slot);
  return false;
}

std::size_t Guards::usable_size(const void* address) noexcept {
  if (!holds(address)) return 0;
  const Slot* const slot = slot_at(address);
  const bool is_block = slot != nullptr && slot->block() == address_of(address) &&
                        slot->state.load(std::memory_order_acquire) == State::live;
  return is_block ? slot->bytes : 0;
}

heap::Bounds Guards::bounds_of(const void* address) noexcept {
  const Slot* const slot = slot_at(address);
  if (slot == nullptr || address_of(address) < slot->block()) return {};
  const State state = slot->state.load(std::memory_order_acquire);
  if (state != State::live && state != State::freed) return {};
  return {reinterpret_cast<const void*>(slot->block()),
          state == State::freed ? heap::Bounds::kFreed : slot->bytes};
}

Address Guards::block_on_page(const void* address) noexcept {
  const Slot* const slot = slot_at(address);
  return slot != nullptr ? slot->block() : 0;
}

// --- reports -----------------------------------------------------------------------------------

// Detects writes that did not reach a guard.
void Guards::check_surroundings(const Slot& slot) noexcept {
  const Address page = page_of(slot);
  const auto* const block = reinterpret_cast<const void*>(slot.block());
  if (!is_filler(slot.block() + used_bytes(slot.bytes), page + page_)) {
    ReportToUser::report(misuse_of(MisuseKind::overflow, block, &slot));
  } else if (!is_filler(page, slot.block())) {
    ReportToUser::report(misuse_of(MisuseKind::underflow, block, &slot));
  }
}

Misuse Guards::misuse_of(MisuseKind kind, const void* address, const Slot* slot) noexcept {
  Misuse misuse{.kind = kind, .address = address};
  if (slot == nullptr || slot->state.load(std::memory_order_acquire) == State::unused) {
    return misuse;
  }
  misuse.block = reinterpret_cast<const void*>(slot->block());
  misuse.block_bytes = slot->bytes;
  return misuse;
}

void Guards::report_not_in_use(const void* address, const Slot* slot) noexcept {
  const bool was_block = slot != nullptr && slot->block() == address_of(address) &&
                         slot->state.load(std::memory_order_acquire) != State::unused;
  const auto kind = was_block ? MisuseKind::double_free : MisuseKind::invalid_free;
  ReportToUser::report(misuse_of(kind, address, slot_near(address)));
}

Misuse Guards::describe(MisuseKind kind, const void* address) noexcept {
  return misuse_of(kind, address, slot_near(address));
}

bool Guards::explain_fault(const void* address, Misuse* misuse) noexcept {
  if (base_.load(std::memory_order_acquire) == 0 || !holds(address)) return false;
  const Slot* slot = slot_near(address);
  State state = slot == nullptr ? State::unused : slot->state.load(std::memory_order_acquire);
  if (slot != nullptr && state == State::unused) {
    // The access crossed a guard into a page that was never used, so it is not a use-after-free.
    slot = last_used_before(slot);
    state = State::live;
  }
  auto kind = MisuseKind::access_past_the_end;
  if (slot != nullptr && state != State::live) {
    kind = MisuseKind::access_after_free;
  } else if (slot != nullptr && address_of(address) < slot->block()) {
    kind = MisuseKind::access_before_the_start;
  }
  *misuse = misuse_of(kind, address, slot);
  return true;
}

void Guards::write_place(Text& out, const Misuse& misuse) noexcept {
  const Address at = address_of(misuse.address);
  const Address block = address_of(misuse.block);
  out << "\nallod:   ";
  if (at < block) {
    out << std::uint64_t{block - at} << " bytes before ";
  } else if (at >= block + misuse.block_bytes && at != block) {
    out << std::uint64_t{at - block - misuse.block_bytes} << " bytes past the end of ";
  } else if (at != block) {
    out << std::uint64_t{at - block} << " bytes into ";
  }
  out << "guarded block " << Hex{block} << " of " << std::uint64_t{misuse.block_bytes} << " bytes";
}

History Guards::history_of(const Misuse& misuse) noexcept {
  const Slot* const slot = slot_at(misuse.block);
  const bool in_use = slot->state.load(std::memory_order_acquire) != State::freed;
  return {in_use, slot->allocating_thread, slot->freeing_thread, &slot->allocated_at,
          &slot->freed_at};
}

}  // namespace allod
