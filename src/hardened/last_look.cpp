#include "hardened/last_look.hpp"

#include <string.h>
#include <sys/syscall.h>

#include <algorithm>

#include "hardened/neighbours.hpp"
#include "hardened/reports.hpp"

namespace allod::hardened {

namespace {

using slab::Slab;
using space::Span;

constinit long process = 0;

// The first few, which are enough. They are found under the space's lock, and reported without it.
class Finds {
 public:
  void add(Address at, std::size_t bytes) noexcept {
    if (count_ < kMost) finds_[count_++] = {at, bytes};
  }
  void report() const noexcept {
    for (std::size_t i = 0; i < count_; ++i) report(finds_[i]);
  }

 private:
  static constexpr std::size_t kMost = 8;
  // A block, or a range of unused memory.
  struct Find {
    Address at;
    std::size_t bytes;
  };

  static void report(const Find& find) noexcept {
    const Block block = hardened::find(reinterpret_cast<const void*>(find.at));
    const BlockState state = block.bytes != 0 ? block.cell.load() : BlockState{};
    if (state.is_live()) return report_overflow(block, state);
    if (state.was_freed()) return report_written(block, state);
    report_stray_write(find.at, find.bytes);
  }

  Find finds_[kMost];
  std::size_t count_ = 0;
};

// Memory of the heap, copied by the kernel: it may be inaccessible, by guards or by the program.
class Copies {
 public:
  // Of a slab, and of one block of it.
  static constexpr std::size_t kMostSlab = std::size_t{1} << 20;
  static constexpr std::size_t kMostBlock = kDiscarded;

  Copies() noexcept : memory_{static_cast<unsigned char*>(platform().map(kBytes))} {}
  ~Copies() {
    if (memory_ != nullptr) platform().unmap(memory_, kBytes);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Makes each call once: under a filter, a signal handler of the program may answer for it.
  [[nodiscard]] bool are_possible() const noexcept {
    Address word = 0;
    unsigned char page = 0;
    return memory_ != nullptr && HardenedLinux::peek(&word, address_of(this), sizeof word) == 0 &&
           HardenedLinux::look(memory_, platform().page_size(), &page);
  }
  // The range, up to kMostSlab bytes. What is not in memory, or inaccessible, reads as zero.
  [[nodiscard]] ALLOD_HOT const unsigned char* slab(Address from, std::size_t bytes) noexcept {
    Address done = from;
    const auto clear_to = [&](Address to) noexcept {
      if (done < to) memset(memory_ + (done - from), 0, to - done);
      done = to;
    };
    const auto copy_run = [&](Address run, std::size_t length) noexcept {
      clear_to(run);
      if (copy(memory_ + (run - from), run, length)) done = run + length;
      clear_to(run + length);
      return true;
    };
    static_cast<void>(heaps::for_each_present(platform(), from, bytes, copy_run));
    clear_to(from + bytes);
    return memory_;
  }
  // Null if it is inaccessible.
  [[nodiscard]] ALLOD_HOT const unsigned char* block(Address from, std::size_t bytes) noexcept {
    unsigned char* const to = memory_ + kMostSlab;
    return copy(to, from, bytes) ? to : nullptr;
  }

 private:
  static constexpr std::size_t kBytes = kMostSlab + kMostBlock;

  static bool copy(void* to, Address from, std::size_t bytes) noexcept {
    return HardenedLinux::peek(to, from, bytes) == 0;
  }

  unsigned char* memory_;
};

[[nodiscard]] bool is_clear_in(const unsigned char* copy, std::size_t from,
                               std::size_t to) noexcept {
  return is_clear(address_of(copy) + from, address_of(copy) + to);
}

class LastLook {
 public:
  [[nodiscard]] bool is_possible() const noexcept { return copies_.are_possible(); }

  void look() noexcept {
    auto& in = Process::heap().space();
    in.for_each_span([&](const Span& span) noexcept { look_at(span); });
    if (looks_at_free_) {
      in.for_each_untouched(
          [&](Address from, std::size_t bytes) noexcept { look_at_unused(from, bytes); });
    }
  }
  void report() const noexcept { finds_.report(); }

 private:
  ALLOD_HOT void look_at(const Span& span) noexcept {
    if (space::is_free(span)) {
      if (looks_at_free_ && span.region->source == nullptr) {
        look_at_unused(span.base, span.size.bytes());
      }
      return;
    }
    if (span.state != space::SpanState::used) return;
    const space::Tag tag = Process::heap().space().map().tag_of(span.base);
    if (tag == space::kHugeTag) {
      return look_at_large(find(reinterpret_cast<const void*>(span.base)));
    }
    const bool is_ours = space::is_domains(tag) || space::owner_of(tag) == space::kOrphanOwner;
    if (!is_ours || !space::is_slab(tag)) return;
    const auto& slab = static_cast<const Slab&>(span);
    // A slab that has just got its descriptor is none yet.
    const std::size_t bytes = std::size_t{slab.capacity()} * slab.block_bytes();
    if (slab.first_block() != span.base || bytes == 0 || bytes > span.size.bytes()) return;
    if (slab.block_bytes() < kDiscarded && span.size.bytes() <= Copies::kMostSlab) {
      return look_at_slab(slab);
    }
    for (std::uint32_t i = 0; i < slab.capacity(); ++i) look_at_large(block_at(slab, i));
  }
  [[nodiscard]] static Block block_at(const Slab& slab, std::uint32_t index) noexcept {
    return block_in(slab, index, address_of(slab.block_at(index)), false);
  }
  // Of a large block in use, only what lies behind it on one page. Free ones are mostly closed, but
  // not those that nobody has had.
  ALLOD_HOT void look_at_large(const Block& block) noexcept {
    if (block.bytes == 0) return;
    const BlockState state = block.cell.load();
    if (state == BlockState{} && block.is_in_slab()) {
      const Address changed = looks_at_free_ ? find_changed(block.address, block.bytes) : 0;
      // Nobody writes to it before it is in use.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (changed != 0 && block.cell.load() == state) finds_.add(changed, 1);
      return;
    }
    if (!looks_behind_ || !state.is_live() || !has_canary(state)) return;
    const std::size_t requested = block.requested(state);
    const Address from = block.address + requested;
    const Address page_end = align_up(from + Canary::kBytes, platform().page_size());
    const std::size_t bytes = std::min(page_end, block.address + block.bytes) - from;
    for (int look = 0; look < kLooks; ++look) {
      const unsigned char* const copy = copies_.block(from, bytes);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (copy == nullptr || block.cell.load() != state) return;
      if (canary.is_intact_in(copy, block.address, requested, block.bytes) &&
          (!on<Mitigation::zero>() || is_clear_in(copy, Canary::kBytes, bytes))) {
        return;
      }
    }
    finds_.add(block.address, block.bytes);
  }
  ALLOD_HOT void look_at_slab(const Slab& slab) noexcept {
    const std::size_t bytes = space::open_end_of(slab) - slab.base;
    const unsigned char* const copy = copies_.slab(slab.base, bytes);
    for (std::uint32_t i = 0; i < slab.capacity(); ++i) {
      const Block block = block_at(slab, i);
      if (is_as_it_must_be(block, block.cell.load(), copy + (block.address - slab.base))) continue;
      if (is_changed_for_sure(block)) finds_.add(block.address, block.bytes);
    }
    const std::size_t used = std::size_t{slab.capacity()} * slab.block_bytes();
    if (looks_at_free_ && !is_clear_in(copy, used, bytes)) {
      look_at_unused(slab.base + used, bytes - used);
    }
  }
  [[nodiscard]] ALLOD_HOT bool is_as_it_must_be(const Block& block, BlockState state,
                                                const unsigned char* copy) const noexcept {
    if (state.is_live()) {
      if (!looks_behind_ || !has_canary(state)) return true;
      const std::size_t requested = block.requested(state);
      if (!canary.is_intact_in(copy + requested, block.address, requested, block.bytes))
        return false;
      const bool has_end = Canary::has_end(block.bytes);
      return !on<Mitigation::zero>() || is_clear_in(copy, requested + Canary::kBytes,
                                                    block.bytes - (has_end ? Canary::kBytes : 0));
    }
    const bool is_free = state == BlockState{} || (state.was_freed() && !state.is_closed());
    return !looks_at_free_ || !is_free || is_clear_in(copy, 0, block.bytes);
  }
  // Looks until the block is as it must be in a state that has lasted for the look.
  [[nodiscard]] bool is_changed_for_sure(const Block& block) noexcept {
    const BlockState state = block.cell.load();
    for (int look = 0; look < kLooks; ++look) {
      const unsigned char* const copy = copies_.block(block.address, block.bytes);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (copy == nullptr || block.cell.load() != state) return false;
      if (is_as_it_must_be(block, state, copy)) return false;
      cpu_relax();
    }
    return true;
  }
  // For memory that no block has. Nobody takes it while the space is locked.
  ALLOD_HOT void look_at_unused(Address from, std::size_t bytes) noexcept {
    const Address changed = find_changed(from, bytes);
    if (changed != 0) finds_.add(changed, 1);
  }
  // The first byte that is not zero; 0: none.
  [[nodiscard]] ALLOD_HOT Address find_changed(Address from, std::size_t bytes) noexcept {
    for (const Address end = from + bytes; from < end; from += Copies::kMostSlab) {
      const std::size_t length = std::min<std::size_t>(end - from, Copies::kMostSlab);
      bool is_present = false;
      const auto note = [&](Address, std::size_t) noexcept { return !(is_present = true); };
      const Address first = align_down(from, platform().page_size());
      const bool is_told = heaps::for_each_present(
          platform(), first, align_up(from + length, platform().page_size()) - first, note);
      if (!is_told || !is_present) continue;
      const unsigned char* const copy = copies_.slab(first, from + length - first);
      const unsigned char* const found =
          std::find_if(copy + (from - first), copy + (from + length - first),
                       [](unsigned char byte) { return byte != 0; });
      const auto at = static_cast<std::size_t>(found - copy);
      if (at < from + length - first) return first + at;
    }
    return 0;
  }

  static constexpr int kLooks = 8;

  const bool looks_at_free_ = on<Mitigation::written>() && on<Mitigation::zero>();
  const bool looks_behind_ = on<Mitigation::canary>();
  Copies copies_;
  Finds finds_;
};

}  // namespace

void note_process() noexcept { process = raw_syscall(SYS_getpid); }

void look_at_all() noexcept {
  if (had_other_threads || process != raw_syscall(SYS_getpid)) return;
  LastLook last;
  if (!last.is_possible()) return;
  // A handler that allocates would wait for the space's lock.
  const std::uint64_t mask = HardenedLinux::block_signals();
  last.look();
  HardenedLinux::restore_signals(mask);
  last.report();
}

}  // namespace allod::hardened
