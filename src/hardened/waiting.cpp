#include "hardened/waiting.hpp"

#include "allod/os/posix/at_fork.hpp"
#include "hardened/last_look.hpp"
#include "hardened/neighbours.hpp"
#include "hardened/reports.hpp"

namespace allod::hardened {

using heaps::is_zero;
using heaps::Quarantine;

namespace {

constinit pthread_key_t key = 0;
constinit bool has_key = false;
constinit Quarantine closed{true};
// As far as we know.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool has_ended = false;
// Quarantines of ended threads, with their blocks, for new threads.
constinit std::atomic<Quarantine*> left_behind[8];
// How many quarantines there are, and what may wait in all of them together: blocks of idle threads
// must not add up.
constinit std::atomic<std::uint32_t> quarantines{0};
constexpr std::size_t kAllBytes = std::size_t{768} << 10;

[[nodiscard]] std::size_t share() noexcept {
  const std::uint32_t count = quarantines.load(std::memory_order_relaxed);
  return Quarantine::share(kAllBytes, count > 0 ? count : 1);
}

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local Quarantine* own_quarantine = &closed;

namespace {

// For blocks that are erased whole.
[[nodiscard]] ALLOD_INLINE bool is_whole_zero(Address from, std::size_t bytes) noexcept {
  Pair seen{};
  const auto look = [&](const Pair& pair) noexcept { seen |= pair; };
  bytes <= slab::BlockStates::kLargestNarrow ? visit_small(from, bytes, look)
                                             : visit_medium(from, bytes, look);
  return (seen[0] | seen[1]) == 0;
}
[[nodiscard]] ALLOD_INLINE bool was_written(const Block& block) noexcept {
  if (!on<Mitigation::written>() || !on<Mitigation::zero>()) return false;
  if (block.is_large()) return false;
  if (block.bytes <= kErasedWhole) return !is_whole_zero(block.address, block.bytes);
  const std::size_t bytes = erased_bytes(block, block.cell.load());
  if (bytes >= heaps::kAsked && !is_filled(block)) {
    const bool is_clear =
        heaps::is_zero_if_present(platform(), block.address, bytes, heaps::Absent::left);
    if (block.bytes < heaps::kAskedAgain) block.slab->note_filled(block.index);
    if (!is_clear) return true;
  } else if (!is_zero(block.address, bytes)) {
    return true;
  }
  return Canary::has_end(block.bytes) && !ends_with_zero(block);
}

[[nodiscard]] ALLOD_HOT Block find_waiting(void* address) noexcept {
  const Block block = find(address);
  // Anything else means that records were overwritten.
  always_check(block.bytes != 0, "a block in quarantine is gone");
  if (__builtin_expect(was_written(block), 0)) {
    report_written(block, block.cell.load());
    erase(block, block.cell.load());
  }
  return block;
}
// For blocks that a sweep has held.
[[gnu::noinline]] std::size_t let_go(void* address) noexcept {
  const std::size_t bytes = find_waiting(address).bytes;
  Process::release(address);
  return bytes;
}
[[gnu::noinline]] ALLOD_HOT void leave_after_look(Ticket ticket, sweep::Batch& held) noexcept {
  const Block block = find_waiting(ticket.address());
  const Left left{.bytes_in_memory = on<Mitigation::zero>() ? 0 : block.bytes};
  if (on<Mitigation::sweep>()) {
    return held.add(block.address, weight_of(block, left), block.bytes);
  }
  Process::release(ticket.address());
}
// Looks at waiting blocks that are erased whole. The others are looked at when they leave.
ALLOD_HOT void look(void* const* words, std::uint32_t number) noexcept {
  if (!on<Mitigation::written>()) return;
  Pair seen{};
  const auto note = [&](const Pair& pair) noexcept { seen |= pair; };
  for (std::uint32_t i = 0; i < number; ++i) {
    const Ticket ticket{words[i]};
    if (!ticket.is_simple()) continue;
    const Address block = address_of(ticket.address());
    const std::size_t bytes = ticket.bytes();
    bytes <= slab::BlockStates::kLargestNarrow ? visit_small(block, bytes, note)
                                               : visit_medium(block, bytes, note);
  }
  if (__builtin_expect((seen[0] | seen[1]) == 0, 1)) return;
  for (std::uint32_t i = 0; i < number; ++i) {
    const Ticket ticket{words[i]};
    if (ticket.is_simple()) static_cast<void>(find_waiting(ticket.address()));
  }
}
// These blocks leave quarantine, at most sweep::Batch::kMost.
ALLOD_HOT void leave_in_burst(void* const* words, std::uint32_t number) noexcept {
  const bool sweeps = on<Mitigation::sweep>();
  sweep::Batch held;
  for (std::uint32_t i = 0; i < number; ++i) {
    const Ticket ticket{words[i]};
    const Address block = address_of(ticket.address());
    const std::size_t bytes = ticket.bytes();
    if (__builtin_expect(!ticket.is_simple(), 0)) {
      leave_after_look(ticket, held);
    } else if (sweeps) {
      held.add(block, bytes, bytes);
    } else {
      Process::release(ticket.address());
    }
  }
  if (sweeps && !sweep::hold(held, &let_go)) {
    held.drain([](Address block) { Process::release(reinterpret_cast<void*>(block)); });
  }
  Process::note_burst();
}
ALLOD_HOT void leave(void* const* words, std::uint32_t number) noexcept {
  constexpr std::uint32_t kMost = sweep::Batch::kMost;
  for (; number > kMost; words += kMost, number -= kMost) leave_in_burst(words, kMost);
  leave_in_burst(words, number);
}

[[nodiscard]] ALLOD_HOT Quarantine* take_left_behind() noexcept {
  for (std::atomic<Quarantine*>& place : left_behind) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    Quarantine* const found = place.exchange(nullptr, std::memory_order_acquire);
    if (found != nullptr) return found;
  }
  return nullptr;
}
// False if all places are taken.
[[nodiscard]] bool put_behind(Quarantine& quarantine) noexcept {
  for (std::atomic<Quarantine*>& place : left_behind) {
    Quarantine* none = nullptr;
    if (place.compare_exchange_strong(none, &quarantine, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}
// Refuses also quarantines with large blocks, since no thread may take them over.
[[nodiscard]] bool leave_behind(Quarantine& quarantine) noexcept {
  bool is_small = !quarantine.is_at_work();
  quarantine.for_each([&](void* word) noexcept {
    is_small = find_waiting(Ticket{word}.address()).bytes < kDiscarded && is_small;
  });
  return is_small && put_behind(quarantine);
}
void end_quarantine(Quarantine& quarantine) noexcept {
  quarantine.clear(random::own(), leave, look);
  Process::heap().space().metadata().free(&quarantine, sizeof quarantine);
  quarantines.fetch_sub(1, std::memory_order_relaxed);
}

// One of an ended thread, or a new one. Null if memory is exhausted.
[[nodiscard]] Quarantine* any_quarantine() noexcept {
  if (Quarantine* const found = take_left_behind()) return found;
  void* const memory = Process::heap().space().allocate_metadata(sizeof(Quarantine));
  if (memory == nullptr) return nullptr;
  quarantines.fetch_add(1, std::memory_order_relaxed);
  return new (memory) Quarantine;
}
[[gnu::cold, gnu::noinline]] Quarantine* new_quarantine() noexcept {
  Quarantine* const quarantine = any_quarantine();
  if (quarantine == nullptr) return &closed;
  own_quarantine = quarantine;
  // May allocate.
  if (has_key) pthread_setspecific(key, own_quarantine);
  return own_quarantine;
}

// Runs when a thread ends, and again, marked by an odd address, after destructors of the program,
// which may free blocks.
ALLOD_HOT void close_quarantine(void* quarantine) noexcept {
  const Address at = address_of(quarantine);
  if (at % 2 == 0 && pthread_setspecific(key, reinterpret_cast<void*>(at + 1)) == 0) return;
  own_quarantine = &closed;
  has_ended = true;
  auto* const own = reinterpret_cast<Quarantine*>(align_down(at, 2));
  if (on<Mitigation::sweep>() || !leave_behind(*own)) end_quarantine(*own);
}
// Blocks freed by destructors after that wait in a quarantine of an ended thread, since nobody
// knows which destructor is last. Large blocks do not, since no thread may take them over. With
// sweep, they are held at once.
[[gnu::cold, gnu::noinline]] bool wait_among_others(Ticket ticket, std::size_t weight) noexcept {
  if (!on<Mitigation::sweep>() && find(ticket.address()).is_large()) return false;
  Quarantine* const quarantine = any_quarantine();
  if (quarantine == nullptr) return false;
  // A signal handler that comes now finds it at work.
  own_quarantine = quarantine;
  const bool waits = quarantine->take(ticket.word(), weight, random::own(), leave, look);
  if (on<Mitigation::sweep>()) quarantine->clear(random::own(), leave, look);
  own_quarantine = &closed;
  if (!put_behind(*quarantine)) end_quarantine(*quarantine);
  return waits;
}
constinit bool has_other_threads = false;
// Before a fork. A lock that is taken counts as another thread.
void look_for_other_threads() noexcept {
  auto& engine = Process::heap();
  has_other_threads = true;
  if (!engine.registry_lock().try_lock()) return;
  std::size_t in_use = 0;
  engine.for_each_domain([&](const auto& domain) noexcept {
    if (domain.state != heap::DomainState::pooled) ++in_use;
  });
  engine.registry_lock().unlock();
  has_other_threads = in_use > 1;
}
// In the child of a fork, those of the parent's other threads are gone, with their blocks.
void count_after_fork() noexcept {
  std::uint32_t count = own_quarantine != &closed ? 1 : 0;
  for (const std::atomic<Quarantine*>& place : left_behind) {
    if (place.load(std::memory_order_relaxed) != nullptr) ++count;
  }
  quarantines.store(count, std::memory_order_relaxed);
  had_other_threads |= has_other_threads;
  note_process();
}
ALLOD_HOT void look_at_waiting(void* word) noexcept {
  const Block block = find(Ticket{word}.address());
  if (block.bytes == 0 || !was_written(block)) return;
  report_written(block, block.cell.load());
  erase(block, block.cell.load());
}

void look_at_quarantines() noexcept {
  own_quarantine->for_each(&look_at_waiting);
  while (Quarantine* const quarantine = take_left_behind()) quarantine->for_each(&look_at_waiting);
}

}  // namespace

void settle() noexcept { own_quarantine->settle(random::own(), look, leave); }

bool wait_in_quarantine(Ticket ticket, std::size_t weight) noexcept {
  Quarantine* quarantine = own_quarantine;
  if (__builtin_expect(quarantine == &closed && !has_ended, 0)) quarantine = new_quarantine();
  quarantine->limit(share());
  if (quarantine->take(ticket.word(), weight, random::own(), leave, look)) return true;
  return has_ended && own_quarantine == &closed && wait_among_others(ticket, weight);
}

Room make_room(std::size_t bytes, bool may_sweep) noexcept {
  // Requests of an attacker must not end the wait of blocks where that would not help.
  constexpr std::size_t kShare = 8;
  Quarantine* const quarantine = own_quarantine;
  std::size_t waiting = 0;
  quarantine->for_each([&](void* word) noexcept { waiting += find(Ticket{word}.address()).bytes; });
  if (bytes / kShare <= waiting && quarantine->clear(random::own(), leave, look)) return Room::made;
  bool had_any = false;
  if (bytes < kDiscarded) {
    for (; Quarantine* const left = take_left_behind(); had_any = true) end_quarantine(*left);
  }
  if (had_any) return Room::made;
  if (!on<Mitigation::sweep>() || Process::is_interrupted()) return Room::none;
  return sweep::make_room(bytes, may_sweep, &let_go);
}

ALLOD_HOT void watch_threads() noexcept {
  has_key = pthread_key_create(&key, &close_quarantine) == 0;
  if (has_key && own_quarantine != &closed) pthread_setspecific(key, own_quarantine);
  os::at_fork(&look_for_other_threads, nullptr, &count_after_fork);
  note_process();
}

void check_at_exit() noexcept {
  if (on<Mitigation::written>() && on<Mitigation::zero>()) look_at_quarantines();
  look_at_all();
}

}  // namespace allod::hardened
