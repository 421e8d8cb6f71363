// A system for tests: its memory, its clock and its failures are what a test says.
//
// Memory is real, cut from one reservation of the fake's own, so that blocks can be written to and
// a forbidden access faults. Where mappings lie is decided by the calls alone: two runs with the
// same calls see the same addresses relative to arena(). Every call is checked against the state
// of the pages it names; a call that the concept does not allow is a failed check. Real algorithms
// over a fake world: after the tests of TCMalloc's page heap.
#pragma once

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "allod/os/platform.hpp"

namespace allod::os {

// Not thread-safe, unlike what the concept asks for: a test that wants to be repeatable runs
// everything on one thread, and says by set_thread() which one it is.
class Fake {
 public:
  enum class Call : std::uint8_t {
    reserve,
    reserve_at,
    reserve_zeros,
    commit,
    map,
    unmap,
    purge,
    grow,
    move,
    start_helper,
    yield,
    map_huge,
    lock,
    bind,
    guard,
    unguard,
    shut,
    reopen,
    present,
    wait,  // of the helper, for time to pass
  };
  static constexpr std::size_t kCalls = 20;

  // Where the next mapping goes.
  enum class Placement : std::uint8_t {
    descending,  // the highest gap that is large enough, as Linux does it
    ascending,   // the lowest
    scattered,   // somewhere, chosen by a generator
  };
  // What purge does.
  enum class Purge : std::uint8_t {
    zeroes,     // gives the memory back; it reads as zero from now on
    refuses,    // does nothing and says so
    scrambles,  // gives the memory back, says that it does not read as zero, and means it
  };
  enum class Pages : std::uint8_t {
    none,      // not mapped
    reserved,  // no access
    zeros,     // may be read
    usable,    // may be read and written
    guarded,   // was usable, and will be
    shut,      // the same, and keeps what it holds
  };

  constexpr Fake() noexcept = default;
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
  ~Fake() {
    own_words_ = {};
    if (state_ == nullptr) return;
    munmap(reinterpret_cast<void*>(state_->raw), kArenaBytes + kArenaAlignment);
    delete state_;
  }

  // --- what a test says, before or after start() ------------------------------------------------

  void set_page_size(std::size_t bytes) noexcept { page_size_ = bytes; }
  // Told to whoever asks, and enforced on everything that is mapped; 0: none.
  void set_address_space_limit(std::size_t bytes) noexcept { address_limit_ = bytes; }
  void set_processors(std::uint32_t count, std::uint32_t quota) noexcept {
    processors_ = count;
    quota_ = quota;
  }
  // Of pages that are usable at the same time, as under strict overcommit; 0: none.
  void set_memory_limit(std::size_t bytes) noexcept { memory_limit_ = bytes; }
  void set_placement(Placement placement) noexcept { placement_ = placement; }
  // Bytes left free beside each new mapping, a multiple of the page size.
  void set_gap(std::size_t bytes) noexcept { gap_ = bytes; }
  // Mappings that the process may have, counted as Linux does; 0: any number. What needs more
  // fails, or does nothing.
  void set_mapping_limit(std::size_t count) noexcept { mapping_limit_ = count; }
  // Are reservations best beside each other? Without this they are.
  void set_gathering(bool on) noexcept { gathers_ = on; }
  // The next mapping begins that many bytes into the arena, whatever the placement.
  void place_next_at(std::size_t offset) noexcept { next_offset_ = offset; }
  // Guards of a page; without this there are none.
  void set_guards(bool on) noexcept { guards_ = on; }
  // Without this, grow says of every mapping that it cannot be remapped, as Linux does of one
  // whose parts have come to differ.
  void set_remaps(bool on) noexcept { remaps_ = on; }
  // Spans at random places, chosen by a generator; without this there are none.
  void set_scattering(bool on) noexcept { scatters_ = on; }
  void set_purge(Purge mode) noexcept { purge_mode_ = mode; }
  void advance_clock(std::uint64_t milliseconds) noexcept { now_ms_ += milliseconds; }
  // Who calls from now on.
  void set_thread(std::uint32_t id) noexcept { thread_ = acting_ = id; }

  // Failures. Only calls that can report one are counted here: all but unmap, yield and wait.
  // The `nth` call of this kind from now on fails, and only that one; 1 is the next.
  void fail_call(Call kind, std::uint64_t nth) noexcept { fail_kind_[index_of(kind)] = nth; }
  // The `nth` call of whatever kind fails, and only that one.
  void fail_nth_call(std::uint64_t nth) noexcept { fail_any_ = nth; }
  // Everything fails from the `nth` call on.
  void fail_from_call(std::uint64_t nth) noexcept { fail_from_ = nth; }
  // Each call fails with this probability.
  void fail_randomly(std::uint64_t seed, std::uint32_t per_mille) noexcept {
    random_ = seed;
    fail_per_mille_ = per_mille;
  }
  // Everything fails once this many bytes more have been mapped or made usable.
  void fail_after_bytes(std::size_t bytes) noexcept {
    fail_after_bytes_ = bytes;
    fails_after_bytes_ = true;
  }
  // Calls of futex_wake(), whatever for.
  [[nodiscard]] static std::uint64_t wakes() noexcept { return wakes_; }
  // Called at each call, before anything happens; may use what is above the fake.
  void set_observer(std::function<void(Call)> observer) { state().observer = std::move(observer); }
  void succeed() noexcept {
    fail_kind_ = {};
    fail_any_ = 0;
    fail_from_ = 0;
    fail_per_mille_ = 0;
    fails_after_bytes_ = false;
  }

  // --- what a test asks -------------------------------------------------------------------------

  [[nodiscard]] std::uint64_t count(Call kind) const noexcept { return counts_[index_of(kind)]; }
  [[nodiscard]] std::uint64_t count_all() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t one : counts_) sum += one;
    return sum;
  }
  [[nodiscard]] std::uint64_t injected_failures() const noexcept { return injected_; }
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
  [[nodiscard]] std::size_t usable_bytes() const noexcept { return usable_bytes_; }
  // Addresses beside each other of which the same was said are one.
  [[nodiscard]] std::size_t mappings() { return count_mappings(state().segments, state().advice); }
  // Were huge pages asked for there, and not given up since?
  [[nodiscard]] bool is_huge_at(Address at) {
    return advice_at(state().advice, at).huge == Huge::preferred;
  }
  [[nodiscard]] bool is_left_out_of_dumps(const void* address) {
    return advice_at(state().advice, address_of(address)).is_hidden;
  }
  // By prefer_huge_once().
  [[nodiscard]] std::size_t huge_bytes_once() const noexcept { return huge_bytes_once_; }
  [[nodiscard]] std::size_t purged_bytes() const noexcept { return purged_bytes_; }
  [[nodiscard]] std::size_t populated_bytes() const noexcept { return populated_bytes_; }
  // First address of the arena, a multiple of 1 GiB.
  [[nodiscard]] Address arena() noexcept { return state().base; }
  [[nodiscard]] static constexpr std::size_t arena_bytes() noexcept { return kArenaBytes; }
  [[nodiscard]] Pages pages_at(const void* address) noexcept {
    const auto found = segment_around(address_of(address));
    return found == state().segments.end() ? Pages::none : found->second.pages;
  }
  // Bytes of the range that are in memory. The range must be mapped, and its bounds multiples of
  // the page size of the machine that the test runs on.
  [[nodiscard]] static std::size_t resident_bytes(const void* address, std::size_t bytes) {
    std::vector<unsigned char> pages(bytes / kRealPage);
    always_check(mincore(const_cast<void*>(address), bytes, pages.data()) == 0,
                 "mincore of a range that is not mapped");
    std::size_t resident = 0;
    for (const unsigned char page : pages) resident += (page & 1U) != 0 ? kRealPage : 0;
    return resident;
  }
  [[nodiscard]] bool helper_waits() const noexcept { return helper_ != nullptr; }
  // Runs what start_helper() was given, to its end; whenever it sleeps, the clock moves on.
  void run_helper() noexcept {
    always_check(helper_ != nullptr, "no helper was started");
    Fake* const outer = running_;
    running_ = this;
    helper_(helper_argument_);
    running_ = outer;
    helper_ = nullptr;
  }

  // --- the concept ------------------------------------------------------------------------------

  void start() noexcept {
    always_check(!started_, "the platform is started twice");
    always_check(is_power_of_two(page_size_) && page_size_ % kRealPage == 0,
                 "the fake's pages cannot be smaller than real ones");
    started_ = true;
    acting_ = thread_;
  }
  [[nodiscard]] std::size_t page_size() const noexcept {
    check_started();
    return page_size_;
  }
  [[nodiscard]] std::size_t memory_limit() const noexcept { return 0; }
  [[nodiscard]] std::size_t address_space_limit() const noexcept {
    check_started();
    return address_limit_;
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
    return map_as(Call::reserve_zeros, Pages::zeros, bytes, page_size_);
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
    if (memory_limit_ != 0 && usable_bytes_ + more > memory_limit_) return false;
    return set_pages_within_limit(address, bytes, Pages::usable);
  }
  void unmap(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "unmap");
    observe(Call::unmap);
    always_check(is_all(address, bytes, [](Pages pages) { return pages != Pages::none; }),
                 "unmap: pages that are not mapped");
    set_pages(address, bytes, Pages::none);
    set_advice(state().advice, address_of(address), address_of(address) + bytes,
               [](Advice& advice) { advice = {}; });
  }
  [[nodiscard]] bool purge(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "purge");
    const auto may_be = [](Pages pages) { return pages == Pages::usable || pages == Pages::shut; };
    always_check(is_all(address, bytes, may_be), "purge: pages that are not usable");
    if (fails(Call::purge, 0) || purge_mode_ == Purge::refuses) return false;
    purged_bytes_ += bytes;
    always_check(madvise(address, bytes, MADV_DONTNEED) == 0, "the fake cannot purge");
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
    if (fails(Call::move, to > from ? to - from : 0) ||
        (to > from && memory_limit_ != 0 && usable_bytes_ + (to - from) > memory_limit_)) {
      set_pages(target, to, Pages::none);
      return false;
    }
    set_pages(target, to, Pages::usable);
    std::memcpy(target, address, from < to ? from : to);
    set_pages(address, from, Pages::none);
    return true;
  }
  [[nodiscard]] std::size_t guard_bytes(bool) const noexcept { return guards_ ? page_size() : 0; }
  [[nodiscard]] bool guard(void* address, std::size_t bytes) noexcept {
    check_range(address, bytes, "guard");
    always_check(is_all(address, bytes, [](Pages pages) { return pages == Pages::usable; }),
                 "guard: pages that are not usable");
    if (fails(Call::guard, 0) || spares_mappings_) return false;
    if (!fits_limit(address, bytes, Pages::guarded)) return false;
    always_check(madvise(address, bytes, MADV_DONTNEED) == 0, "the fake cannot guard");
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
    if (mapping_limit_ == 0 || mappings() + 3 <= mapping_limit_) return false;
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
  [[nodiscard]] std::size_t present_bytes(void* address, std::size_t bytes) noexcept {
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
  [[nodiscard]] std::uint64_t now_ms() const noexcept { return now_ms_; }
  void after_fork_in_child() noexcept { helper_ = nullptr; }
  [[nodiscard]] std::uint32_t thread_id() const noexcept { return thread_; }
  [[nodiscard]] std::uint32_t processors() const noexcept { return processors_; }
  [[nodiscard]] std::uint32_t processor_quota() const noexcept { return quota_; }
  [[nodiscard]] static std::uint32_t processor() noexcept {
    return static_cast<std::uint32_t>(acting_ % 2);
  }
  [[nodiscard]] bool start_helper(void (*function)(void*), void* argument) noexcept {
    if (fails(Call::start_helper, 0) || helper_ != nullptr) return false;
    helper_ = function;
    helper_argument_ = argument;
    return true;
  }
  [[nodiscard]] bool wait_for_helper() noexcept {
    if (running_ == this) return false;
    if (helper_ != nullptr) run_helper();
    return true;
  }

  [[nodiscard]] bool start_barriers() noexcept { return true; }
  void barrier() noexcept {}
  // The other threads of a test run inside its observer, or not at all.
  void yield() noexcept {
    observe(Call::yield);
    always_check(++yields_in_a_row_ < kMostYields, "the only thread waits for others");
  }
  static void* self() noexcept { return &own_word(); }
  static void*& own_word() noexcept { return own_words_[acting_ % own_words_.size()]; }

  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    always_check(word->load() != expected, "the only thread would wait for ever");
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    always_check(running_ != nullptr, "only a helper may wait for time to pass");
    if (word->load() != expected) return;
    running_->advance_clock(milliseconds);
    running_->observe(Call::wait);
  }
  static void futex_wake(std::atomic<std::uint32_t>*, int) noexcept { ++wakes_; }

 private:
  static constexpr std::size_t kRealPage = 4096;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr int kNoMemory = ENOMEM;
  static constexpr int kInvalid = EINVAL;
  static constexpr int kFault = EFAULT;
  static constexpr std::size_t kArenaAlignment = std::size_t{1} << 30;
  static constexpr std::size_t kArenaBytes = std::size_t{1} << 37;
  static_assert(kArenaBytes > std::size_t{1} << (kAddressBits - kSliceShift + 4),
                "a full page map must leave room");

  enum class Huge : std::uint8_t { usual, preferred, avoided };
  struct Advice {
    Huge huge = Huge::usual;
    bool is_hidden = false;
    bool operator==(const Advice&) const = default;
  };
  using Advices = std::map<Address, Advice>;  // from there on; before the first, the usual
  struct Segment {
    Address end;
    Pages pages;
  };
  using Segments = std::map<Address, Segment>;  // disjoint; what is in none is not mapped
  struct State {
    Address raw = 0;
    Address base = 0;
    Segments segments;
    Advices advice;
    std::function<void(Call)> observer;
  };

  static constexpr std::size_t index_of(Call kind) noexcept {
    return static_cast<std::size_t>(kind);
  }
  void check_started() const noexcept {
    always_check(started_, "the platform is used before its start");
  }
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
    State& s = state();
    Advices changed = s.advice;
    set_advice(changed, address_of(address), address_of(address) + bytes, change);
    const bool fits = mapping_limit_ == 0 || count_mappings(s.segments, changed) <= mapping_limit_;
    if (fits) s.advice = std::move(changed);
  }
  static Advice advice_at(const Advices& advices, Address at) {
    const auto after = advices.upper_bound(at);
    return after == advices.begin() ? Advice{} : std::prev(after)->second;
  }
  template <class Change>
  static void set_advice(Advices& advices, Address first, Address end, Change&& change) {
    advices.emplace(end, advice_at(advices, end));
    advices.emplace(first, advice_at(advices, first));
    for (auto at = advices.find(first); at->first < end; ++at) change(at->second);
    Advice before;
    for (auto at = advices.begin(); at != advices.end();) {
      const bool is_same = at->second == before;
      before = at->second;
      at = is_same ? advices.erase(at) : std::next(at);
    }
  }
  static std::size_t count_mappings(const Segments& segments, const Advices& advices) {
    std::size_t count = segments.size();
    for (const auto& [at, advice] : advices) {
      const auto after = segments.lower_bound(at);
      count += after != segments.begin() && std::prev(after)->second.end > at ? 1 : 0;
    }
    return count;
  }
  bool fits_limit(void* address, std::size_t bytes, Pages pages) {
    if (mapping_limit_ == 0) return true;
    Segments changed = state().segments;
    assign(changed, address_of(address), address_of(address) + bytes, pages);
    return count_mappings(changed, state().advice) <= mapping_limit_;
  }
  bool set_pages_within_limit(void* address, std::size_t bytes, Pages pages) {
    if (!fits_limit(address, bytes, pages)) return false;
    set_pages(address, bytes, pages);
    return true;
  }
  void check_mapping(void* address, std::size_t from, std::size_t to, const char* call) noexcept {
    check_range(address, from, call);
    always_check(to != 0 && to % page_size_ == 0, call);
    always_check(is_all(address, from, [](Pages pages) { return pages == Pages::usable; }), call);
  }

  State& state() noexcept {
    if (state_ != nullptr) return *state_;
    state_ = new State;
    void* const raw = mmap(nullptr, kArenaBytes + kArenaAlignment, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    always_check(raw != MAP_FAILED, "no addresses for the fake's arena");
    state_->raw = address_of(raw);
    state_->base = align_up(state_->raw, kArenaAlignment);
    return *state_;
  }

  // --- failures ---------------------------------------------------------------------------------

  void observe(Call kind) noexcept {
    if (kind != Call::yield) yields_in_a_row_ = 0;
    ++counts_[index_of(kind)];
    if (state().observer) state().observer(kind);
  }
  // Counts the call, and decides whether it is to fail. `bytes` is what it would take.
  bool fails(Call kind, std::size_t bytes) noexcept {
    check_started();
    observe(kind);
    bool failed = counts_down(fail_kind_[index_of(kind)]);
    failed |= counts_down(fail_any_);
    if (fail_from_ == 1) {
      failed = true;
    } else if (fail_from_ > 1) {
      --fail_from_;
    }
    failed |= fail_per_mille_ != 0 && next_random() % 1000 < fail_per_mille_;
    if (fails_after_bytes_) {
      if (fail_after_bytes_ < bytes) failed = true;
      fail_after_bytes_ -= failed ? 0 : bytes;
    }
    injected_ += failed ? 1 : 0;
    return failed;
  }
  static bool counts_down(std::uint64_t& counter) noexcept {
    return counter != 0 && --counter == 0;
  }
  bool exceeds_limits(Pages pages, std::size_t bytes) const noexcept {
    return (address_limit_ != 0 && mapped_bytes_ + bytes > address_limit_) ||
           (pages == Pages::usable && memory_limit_ != 0 && usable_bytes_ + bytes > memory_limit_);
  }
  // SplitMix64, after G. Steele, D. Lea and C. Flood.
  std::uint64_t next_random() noexcept {
    std::uint64_t z = (random_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // --- pages ------------------------------------------------------------------------------------

  void* map_as(Call kind, Pages pages, std::size_t bytes, std::size_t alignment) noexcept {
    check_started();
    always_check(bytes != 0 && bytes % page_size_ == 0, "a length is no multiple of the page size");
    if (fails(kind, bytes) || exceeds_limits(pages, bytes)) return nullptr;
    const Address place = find_place(bytes, alignment < page_size_ ? page_size_ : alignment);
    if (place == 0) return nullptr;
    void* const memory = reinterpret_cast<void*>(place);
    return set_pages_within_limit(memory, bytes, pages) ? memory : nullptr;
  }

  // 0 when there is no room.
  Address find_place(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes > kArenaBytes || alignment > kArenaAlignment) return 0;
    if (next_offset_ != kAnywhere) {
      const Address place = state().base + next_offset_;
      next_offset_ = kAnywhere;
      return is_free(place, bytes) && place % alignment == 0 ? place : 0;
    }
    if (placement_ == Placement::scattered) {
      for (int attempt = 0; attempt < 16; ++attempt) {
        const std::size_t offset = next_random() % (kArenaBytes - bytes + 1);
        const Address place = align_down(state().base + offset, alignment);
        if (is_free(place, bytes)) return place;
      }
    }
    return placement_ == Placement::ascending ? lowest_place(bytes, alignment)
                                              : highest_place(bytes, alignment);
  }
  Address highest_place(std::size_t bytes, std::size_t alignment) noexcept {
    State& s = state();
    Address top = s.base + kArenaBytes;
    for (auto next = s.segments.rbegin();; ++next) {
      const bool at_end = next == s.segments.rend();
      const Address bottom = at_end ? s.base : next->second.end;
      if (top - bottom >= bytes + gap_) {
        const Address place = align_down(top - gap_ - bytes, alignment);
        if (place >= bottom) return place;
      }
      if (at_end) return 0;
      top = next->first;
    }
  }
  Address lowest_place(std::size_t bytes, std::size_t alignment) noexcept {
    State& s = state();
    Address bottom = s.base;
    for (auto next = s.segments.begin();; ++next) {
      const bool at_end = next == s.segments.end();
      const Address top = at_end ? s.base + kArenaBytes : next->first;
      const Address place = align_up(bottom + gap_, alignment);
      if (place <= top && top - place >= bytes) return place;
      if (at_end) return 0;
      bottom = next->second.end;
    }
  }

  Segments::iterator segment_around(Address at) noexcept {
    Segments& segments = state().segments;
    auto after = segments.upper_bound(at);
    if (after == segments.begin()) return segments.end();
    --after;
    return at < after->second.end ? after : segments.end();
  }
  bool is_free(Address first, std::size_t bytes) noexcept {
    State& s = state();
    if (first < s.base || bytes > kArenaBytes || first - s.base > kArenaBytes - bytes) return false;
    const auto after = s.segments.lower_bound(first);
    const bool starts_free = segment_around(first) == s.segments.end();
    return starts_free && (after == s.segments.end() || after->first >= first + bytes);
  }
  template <class Condition>
  bool is_all(void* address, std::size_t bytes, Condition&& condition) noexcept {
    Address at = address_of(address);
    for (const Address end = at + bytes; at < end;) {
      const auto segment = segment_around(at);
      if (segment == state().segments.end()) return false;
      if (!condition(segment->second.pages)) return false;
      at = segment->second.end;
    }
    return true;
  }
  // Of a range that is mapped throughout.
  std::size_t bytes_that_are(Pages pages, void* address, std::size_t bytes) noexcept {
    std::size_t sum = 0;
    Address at = address_of(address);
    for (const Address end = at + bytes; at < end;) {
      const auto segment = segment_around(at);
      const Address stop = segment->second.end < end ? segment->second.end : end;
      if (segment->second.pages == pages) sum += stop - at;
      at = stop;
    }
    return sum;
  }
  static void split_segment(Segments& segments, Address at) noexcept {
    auto segment = segments.lower_bound(at);
    if (segment == segments.begin() || (--segment)->second.end <= at) return;
    const Segment tail = segment->second;
    segment->second.end = at;
    segments.emplace(at, tail);
  }
  static void assign(Segments& segments, Address first, Address end, Pages pages) noexcept {
    split_segment(segments, first);
    split_segment(segments, end);
    segments.erase(segments.lower_bound(first), segments.lower_bound(end));
    if (pages != Pages::none) merge(segments, segments.emplace(first, Segment{end, pages}).first);
  }
  void set_pages(void* address, std::size_t bytes, Pages pages) noexcept {
    const Address first = address_of(address);
    std::size_t usable_before = 0;
    std::size_t mapped_before = 0;
    split_segment(state().segments, first);
    for (auto it = state().segments.lower_bound(first);
         it != state().segments.end() && it->first < first + bytes; ++it) {
      const std::size_t length = std::min(it->second.end, first + bytes) - it->first;
      mapped_before += length;
      if (it->second.pages == Pages::usable) usable_before += length;
    }
    assign(state().segments, first, first + bytes, pages);
    mapped_bytes_ -= mapped_before;
    usable_bytes_ -= usable_before;
    if (usable_before != bytes || pages != Pages::usable) set_access(address, bytes, pages);
    if (pages != Pages::none) mapped_bytes_ += bytes;
    if (pages == Pages::usable) usable_bytes_ += bytes;
  }
  // Of memory that is the heap's.
  void change_pages(void* address, std::size_t bytes, Pages from, Pages to) noexcept {
    const Address end = address_of(address) + bytes;
    for (Address at = address_of(address); at < end;) {
      const auto segment = segment_around(at);
      always_check(segment != state().segments.end(), "pages that are not mapped");
      const Pages pages = segment->second.pages;
      always_check(pages == Pages::usable || pages == Pages::guarded || pages == Pages::shut,
                   "pages that are not the heap's");
      const Address stop = segment->second.end < end ? segment->second.end : end;
      if (pages == from) set_pages(reinterpret_cast<void*>(at), stop - at, to);
      at = stop;
    }
  }
  // Adjacent segments that allow the same become one, as in the system's own list.
  static void merge(Segments& segments, Segments::iterator segment) noexcept {
    const auto joins = [&](Segments::iterator left, Segments::iterator right) {
      return left->second.end == right->first && left->second.pages == right->second.pages;
    };
    const auto next = std::next(segment);
    if (next != segments.end() && joins(segment, next)) {
      segment->second.end = next->second.end;
      segments.erase(next);
    }
    if (segment == segments.begin()) return;
    const auto previous = std::prev(segment);
    if (!joins(previous, segment)) return;
    previous->second.end = segment->second.end;
    segments.erase(segment);
  }
  // Whoever maps these addresses next finds zeros.
  static void set_access(void* address, std::size_t bytes, Pages pages) noexcept {
    const int access = pages == Pages::usable  ? PROT_READ | PROT_WRITE
                       : pages == Pages::zeros ? PROT_READ
                                               : PROT_NONE;
    const bool done =
        pages == Pages::none
            ? mmap(address, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == address
            : mprotect(address, bytes, access) == 0;
    always_check(done, "the system refuses what the fake allows");
  }

  static constexpr std::size_t kAnywhere = ~std::size_t{0};
  static constexpr std::uint32_t kMostYields = 1000;

  std::size_t page_size_ = kRealPage;
  std::size_t address_limit_ = 0;
  std::uint32_t processors_ = 2;
  std::uint32_t quota_ = 0;
  std::size_t memory_limit_ = 0;
  Placement placement_ = Placement::descending;
  std::size_t gap_ = 0;
  std::size_t mapping_limit_ = 0;
  bool gathers_ = true;
  bool spares_mappings_ = false;
  std::size_t huge_bytes_once_ = 0;
  std::size_t next_offset_ = kAnywhere;
  Purge purge_mode_ = Purge::zeroes;
  bool guards_ = false;
  bool scatters_ = false;
  bool remaps_ = true;
  std::uint64_t now_ms_ = 1000;
  std::uint32_t thread_ = 1;
  bool started_ = false;

  std::array<std::uint64_t, kCalls> fail_kind_{};
  std::uint64_t fail_any_ = 0;
  std::uint64_t fail_from_ = 0;
  std::uint32_t fail_per_mille_ = 0;
  std::size_t fail_after_bytes_ = 0;
  bool fails_after_bytes_ = false;
  std::uint64_t random_ = 0;

  std::array<std::uint64_t, kCalls> counts_{};
  std::uint64_t injected_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::size_t usable_bytes_ = 0;
  std::size_t purged_bytes_ = 0;
  std::size_t populated_bytes_ = 0;

  void (*helper_)(void*) = nullptr;
  void* helper_argument_ = nullptr;
  State* state_ = nullptr;
  std::uint32_t yields_in_a_row_ = 0;

  static inline std::uint32_t acting_ = 1;
  static inline std::array<void*, 64> own_words_{};
  static inline thread_local Fake* running_ = nullptr;
  static inline std::uint64_t wakes_ = 0;
};

static_assert(Shutting<Fake> && Scattering<Fake>);

}  // namespace allod::os
