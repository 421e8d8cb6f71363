// A system for tests: its memory, its clock and its failures are what a test says. Its parts:
// fake_calls.hpp, fake_threads.hpp and fake_memory.hpp.
//
// Memory is real, cut from one reservation of the fake's own, so that blocks can be written to and
// a forbidden access faults. Where mappings lie is decided by the calls alone: two runs with the
// same calls see the same addresses relative to arena(). Every call is checked against the state
// of the pages it names; a call that the concept does not allow is a failed check. Real algorithms
// over a fake world: after the tests of TCMalloc's page heap.
#pragma once

#include <errno.h>

#include <cstring>

#include "allod/os/platform.hpp"
#include "fake_memory.hpp"
#include "fake_threads.hpp"

namespace allod::os {

// Not thread-safe, unlike what the concept asks for: a test that wants to be repeatable runs
// everything on one thread, and says by set_thread() which one it is.
class Fake : public FakeThreads, public FakeMemory {
 public:
  // What purge does.
  enum class Purge : std::uint8_t {
    zeroes,     // gives the memory back; it reads as zero from now on
    refuses,    // does nothing and says so
    scrambles,  // gives the memory back, says that it does not read as zero, and means it
  };

  // --- what a test says, before or after start() ------------------------------------------------

  // Are reservations best beside each other? Without this they are.
  void set_gathering(bool on) noexcept { gathers_ = on; }
  // Guards of a page; without this there are none.
  void set_guards(bool on) noexcept { guards_ = on; }
  // Without this, grow says of every mapping that it cannot be remapped, as Linux does of one
  // whose parts have come to differ.
  void set_remaps(bool on) noexcept { remaps_ = on; }
  // Spans at random places, chosen by a generator; without this there are none.
  void set_scattering(bool on) noexcept { scatters_ = on; }
  void set_purge(Purge mode) noexcept { purge_mode_ = mode; }

  // --- what a test asks -------------------------------------------------------------------------

  // By prefer_huge_once().
  [[nodiscard]] std::size_t huge_bytes_once() const noexcept { return huge_bytes_once_; }
  [[nodiscard]] std::size_t purged_bytes() const noexcept { return purged_bytes_; }
  [[nodiscard]] std::size_t populated_bytes() const noexcept { return populated_bytes_; }
  // The result of the last reserve_zeros().
  [[nodiscard]] const void* zeros() const noexcept { return zeros_; }

  // --- the concept ------------------------------------------------------------------------------

  void start() noexcept {
    begin_calls();
    begin_threads();
    always_check(is_power_of_two(page_size_) && page_size_ % kRealPage == 0,
                 "the fake's pages cannot be smaller than real ones");
  }
  [[nodiscard]] std::size_t page_size() const noexcept {
    check_started();
    return page_size_;
  }
  [[nodiscard]] std::size_t memory_limit() const noexcept { return 0; }
  [[nodiscard]] std::size_t address_space_limit() const noexcept {
    check_started();
    return address_limit();
  }
  [[nodiscard]] void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    always_check(is_power_of_two(alignment), "reserve: the alignment is no power of two");
    return map_as(Call::reserve, Pages::reserved, bytes, alignment);
  }
  [[nodiscard]] bool gathers() const noexcept { return gathers_; }
  [[nodiscard]] bool reserve_at(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "reserve_at");
    if (fails(Call::reserve_at, bytes) || exceeds_limits(Pages::reserved, bytes) ||
        !is_free(address_of(address), bytes)) {
      return false;
    }
    return set_pages_within_limit(address, bytes, Pages::reserved);
  }
  [[nodiscard]] void* reserve_zeros(std::size_t bytes) noexcept {
    void* const zeros = map_as(Call::reserve_zeros, Pages::zeros, bytes, page_size_);
    if (zeros != nullptr) dump(zeros, bytes, false);
    return zeros_ = zeros;
  }
  [[nodiscard]] void* map(std::size_t bytes) noexcept {
    return map_as(Call::map, Pages::usable, bytes, page_size_);
  }
  [[nodiscard]] bool commit(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "commit");
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "commit: pages that were never reserved");
    if (fails(Call::commit, bytes)) return false;
    const std::size_t more = bytes - bytes_that_are(Pages::usable, address, bytes);
    if (exceeds_memory(more)) return false;
    return set_pages_within_limit(address, bytes, Pages::usable);
  }
  void unmap(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "unmap");
    observe(Call::unmap);
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "unmap: pages that are not mapped");
    set_pages(address, bytes, Pages::none);
    forget_all_advice(address, bytes);
    forget_pieces(address, bytes);
  }
  [[nodiscard]] bool purge(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "purge");
    const auto may_be = [](Pages pages) { return pages == Pages::usable || pages == Pages::shut; };
    always_check(is_all(address, bytes, may_be), "purge: pages that are not usable");
    if (fails(Call::purge, 0) || purge_mode_ == Purge::refuses) return false;
    purged_bytes_ += bytes;
    clear_pages(address, bytes);
    if (purge_mode_ == Purge::zeroes) return true;
    for (std::size_t at = 0; at < bytes; at += kRealPage) {
      char* const page = static_cast<char*>(address) + at;
      if (pages_at(page) == Pages::usable) std::memset(page, 0xdb, 64);
    }
    return false;
  }
  [[nodiscard]] bool purge_each(const Piece* pieces, std::size_t count) noexcept {
    for (; count > 0; --count, ++pieces) {
      if (!purge(pieces->address, pieces->bytes)) return false;
    }
    return true;
  }
  void populate(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "populate");
    populated_bytes_ += bytes;
    for (std::size_t at = 0; at < bytes; at += kRealPage) {
      // Reads as zero before and after.
      static_cast<volatile unsigned char*>(address)[at] = 0;
    }
  }
  void dump(void* address, std::size_t bytes, bool wanted) {
    advise(address, bytes, [&](Advice& advice) { advice.is_hidden = !wanted; });
  }
  void prefer_huge(void* address, std::size_t bytes) {
    advise(address, bytes, [](Advice& advice) { advice.huge = Huge::preferred; });
  }
  void avoid_huge(void* address, std::size_t bytes) {
    advise(address, bytes, [](Advice& advice) { advice.huge = Huge::avoided; });
  }
  void populate_huge(void* address, std::size_t bytes) {
    always_check(!avoids_huge_at(address_of(address)), "huge pages: they are avoided");
    prefer_huge_once(address, bytes);
  }
  void prefer_huge_once(void* address, std::size_t bytes) {
    check_range(address, bytes, "huge pages");
    for (std::size_t at = 0; at < bytes; at += kHugePage) {
      auto* const first = static_cast<volatile unsigned char*>(address) + at;
      always_check(*first == 0, "huge pages: a page that is not clean");
      *first = 0;
    }
    huge_bytes_once_ += bytes;
  }
  [[nodiscard]] int grow(void* address, std::size_t from, std::size_t to) noexcept {
    check_mapping(address, from, to, "grow");
    always_check(to >= from, "grow: to fewer bytes");
    if (!remaps_) return kFault;
    if (fails(Call::grow, to - from)) return kNoMemory;
    const Address behind = address_of(address) + from;
    if (exceeds_limits(Pages::usable, to - from) || !is_free(behind, to - from)) return kNoMemory;
    set_pages(reinterpret_cast<void*>(behind), to - from, Pages::usable);
    return 0;
  }
  // Fails like Linux when the memory for what is added cannot be had, and then, like Linux before
  // 6.17, has given the target back already.
  [[nodiscard]] bool move(void* address, std::size_t from, void* target, std::size_t to) noexcept {
    check_mapping(address, from, to, "move");
    always_check(is_all(target, to, [](Pages pages) { return pages == Pages::reserved; }),
                 "move: the target is not reserved");
    always_check(remaps_, "move: of what cannot be remapped");
    if (fails(Call::move, to > from ? to - from : 0) || (to > from && exceeds_memory(to - from))) {
      set_pages(target, to, Pages::none);
      return false;
    }
    set_pages(target, to, Pages::usable);
    std::memcpy(target, address, from < to ? from : to);
    set_pages(address, from, Pages::none);
    return true;
  }
  [[nodiscard]] os::Moved move_pages(void* address, std::size_t bytes, void* target) noexcept {
    check_range(address, bytes, "move_pages");
    const auto is_usable = [](Pages pages) { return pages == Pages::usable; };
    always_check(is_all(address, bytes, is_usable) && is_all(target, bytes, is_usable),
                 "move_pages: pages that are not usable");
    always_check(is_one_piece(address, bytes), "move_pages: pages in several mappings");
    if (fails(Call::move_pages, 0)) return os::Moved::lost;
    std::memcpy(target, address, bytes);
    clear_pages(address, bytes);
    forget_pieces(target, bytes);
    add_piece(target, bytes);
    change_advice(target, bytes, [](Advice& advice) { advice.is_foreign = true; });
    return os::Moved::yes;
  }
  void forget_advice(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "forget_advice");
    change_advice(address, bytes, [](Advice& advice) { advice.is_foreign = false; });
  }
  // As if the program had mapped memory there.
  void map_apart(void* address, std::size_t bytes) {
    forget_pieces(address, bytes);
    add_piece(address, bytes);
  }
  [[nodiscard]] bool is_one_mapping(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "is_one_mapping");
    return is_one_piece(address, bytes);
  }
  [[nodiscard]] bool renew(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "renew");
    always_check(resident_bytes(address, bytes) == 0, "renew: pages that were not purged");
    if (fails(Call::renew, 0)) return false;
    forget_all_advice(address, bytes);
    forget_pieces(address, bytes);
    return true;
  }
  [[nodiscard]] std::size_t guard_bytes(bool) const noexcept { return guards_ ? page_size() : 0; }
  [[nodiscard]] bool guard(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "guard");
    always_check(is_all(address, bytes, [](Pages pages) { return pages == Pages::usable; }),
                 "guard: pages that are not usable");
    if (fails(Call::guard, 0) || spares_mappings_) return false;
    if (!fits_limit(address, bytes, Pages::guarded)) return false;
    clear_pages(address, bytes);
    set_pages(address, bytes, Pages::guarded);
    return true;
  }
  [[nodiscard]] bool unguard(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "unguard");
    const auto may_be = [](Pages pages) {
      return pages == Pages::guarded || pages == Pages::usable;
    };
    always_check(is_all(address, bytes, may_be), "unguard: pages that cannot be guarded");
    if (fails(Call::unguard, 0)) return false;
    return set_pages_within_limit(address, bytes, Pages::usable);
  }
  // Guards stay where they are, until there are no mappings for them.
  [[nodiscard]] bool shut(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "shut");
    if (fails(Call::shut, 0) || spares_mappings_ || !fits_limit(address, bytes, Pages::shut)) {
      return false;
    }
    change_pages(address, bytes, Pages::usable, Pages::shut);
    return true;
  }
  [[nodiscard]] bool reopen(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "reopen");
    if (fails(Call::reopen, 0) || !fits_limit(address, bytes, Pages::usable)) return false;
    change_pages(address, bytes, Pages::shut, Pages::usable);
    if (spares_mappings_) change_pages(address, bytes, Pages::guarded, Pages::usable);
    return true;
  }
  [[nodiscard]] bool spares_mappings() noexcept {
    if (!lacks_mappings()) return false;
    spares_mappings_ = true;
    return true;
  }
  [[nodiscard]] bool scatters() const noexcept { return scatters_; }
  [[nodiscard]] std::uint32_t draw(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>(next_random() % bound);
  }
  // Any number of huge pages, until a test makes the call fail.
  [[nodiscard]] void* map_huge(std::size_t bytes, unsigned shift, int* error) noexcept {
    const std::size_t page = std::size_t{1} << shift;
    always_check(bytes % page == 0, "map_huge: not whole pages");
    void* const memory = map_as(Call::map_huge, Pages::usable, bytes, page);
    if (memory == nullptr) *error = kNoMemory;
    return memory;
  }
  [[nodiscard]] std::size_t present_bytes(void* address, std::size_t bytes, bool = false) noexcept {
    check_range(address, bytes, "present_bytes");
    always_check(is_all(address, bytes, [](Pages pages) { return pages == Pages::usable; }),
                 "present_bytes: pages that are not usable");
    return fails(Call::present, 0) ? bytes : resident_bytes(address, bytes);
  }
  [[nodiscard]] static int peek(void* to, Address from, std::size_t bytes) noexcept {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
  }
  [[nodiscard]] bool look(void* address, std::size_t bytes, unsigned char* pages) noexcept {
    check_range(address, bytes, "look");
    always_check(is_all(address, bytes, [](Pages those) { return those == Pages::usable; }),
                 "look: pages that are not usable");
    if (fails(Call::present, 0)) return false;
    for (std::size_t done = 0; done < bytes; done += page_size()) {
      void* const page = static_cast<unsigned char*>(address) + done;
      *pages++ = resident_bytes(page, page_size()) != 0 ? 1 : 0;
    }
    return true;
  }
  [[nodiscard]] int lock(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "lock");
    always_check(is_all(address, bytes, [](Pages pages) { return pages == Pages::usable; }),
                 "lock: pages that are not usable");
    return fails(Call::lock, 0) ? kNoMemory : 0;
  }
  // The fake has the nodes 0 and 1.
  [[nodiscard]] int bind(void* address, std::size_t bytes, std::uint64_t nodes) noexcept {
    check_range(address, bytes, "bind");
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "bind: pages that are not mapped");
    return fails(Call::bind, 0) || (nodes & 3) == 0 ? kInvalid : 0;
  }
  void name(void* address, std::size_t bytes, const char* text) noexcept {
    check_range(address, bytes, "name");
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "name: pages that are not mapped");
    always_check(text != nullptr && text[0] != 0, "name: no text");
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr int kNoMemory = ENOMEM;
  static constexpr int kInvalid = EINVAL;
  static constexpr int kFault = EFAULT;

  void check_range(void* address, std::size_t bytes, const char* call) noexcept {
    check_started();
    const Address at = address_of(address);
    always_check(bytes != 0 && (at | bytes) % page_size_ == 0, call);
  }
  template <class Change>
  void advise(void* address, std::size_t bytes, Change&& change) {
    check_range(address, bytes, "advice");
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "advice: pages that are not mapped");
    set_advice_within_limit(address, bytes, change);
  }
  void check_mapping(void* address, std::size_t from, std::size_t to, const char* call) noexcept {
    check_range(address, from, call);
    always_check(to != 0 && to % page_size_ == 0, call);
    always_check(is_all(address, from, [](Pages pages) { return pages == Pages::usable; }), call);
  }

  void* map_as(Call kind, Pages pages, std::size_t bytes, std::size_t alignment) noexcept {
    check_started();
    always_check(bytes != 0 && bytes % page_size_ == 0, "a length is no multiple of the page size");
    if (fails(kind, bytes) || exceeds_limits(pages, bytes)) return nullptr;
    const Address place = find_place(bytes, alignment < page_size_ ? page_size_ : alignment,
                                     [this] { return next_random(); });
    if (place == 0) return nullptr;
    void* const memory = reinterpret_cast<void*>(place);
    return set_pages_within_limit(memory, bytes, pages) ? memory : nullptr;
  }

  bool gathers_ = true;
  bool spares_mappings_ = false;
  Purge purge_mode_ = Purge::zeroes;
  bool guards_ = false;
  bool scatters_ = false;
  bool remaps_ = true;
  std::size_t huge_bytes_once_ = 0;
  std::size_t purged_bytes_ = 0;
  std::size_t populated_bytes_ = 0;
  void* zeros_ = nullptr;
};

static_assert(Shutting<Fake> && Scattering<Fake>);

}  // namespace allod::os
