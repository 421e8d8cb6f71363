// Linux by raw system calls: never touches errno, and does not depend on the state of libc.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "allod/os/linux/calls.hpp"
#include "allod/os/linux/control_groups.hpp"
#include "allod/os/linux/guest.hpp"
#include "allod/os/linux/helper.hpp"
#include "allod/os/linux/nodes.hpp"
#include "allod/os/linux/restartable.hpp"
#include "allod/os/linux/rights.hpp"
#include "allod/os/linux/vdso.hpp"
#include "allod/os/platform.hpp"
#include "allod/os/posix/at_fork.hpp"
#include "allod/os/posix/thread_end.hpp"

namespace allod::os {

class Linux {
 public:
  void start() noexcept {
    // Read now, since the program may forbid itself to read it later.
    const unsigned long page = Auxiliary::value(AT_PAGESZ);
    page_size_ = page != 0 ? page : 4096;
  }
  [[nodiscard]] std::size_t page_size() const noexcept { return page_size_; }

  [[nodiscard]] std::size_t address_space_limit() const noexcept {
    const std::uint64_t limit = limit_of(RLIMIT_AS);
    if (limit == RLIM64_INFINITY) return 0;
    return static_cast<std::size_t>(limit < SIZE_MAX ? limit : SIZE_MAX);
  }

  [[nodiscard]] std::size_t memory_limit() const noexcept { return ControlGroups{}.memory_limit(); }

  [[nodiscard]] void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    if (!is_granted(bytes)) return nullptr;
    void* const exact = map_anonymous(bytes, PROT_NONE);
    if (exact == nullptr || is_aligned(exact, alignment)) return exact;
    unmap(exact, bytes);
    return reserve_trimmed(bytes, alignment);
  }
  [[nodiscard]] static bool gathers() noexcept { return true; }
  // Linux before 4.17 ignores the flag and takes the address as a hint.
  [[nodiscard]] bool reserve_at(void* address, std::size_t bytes) noexcept {
    const long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kFixedNoReplace;
    const long result =
        raw_syscall(calls::kMap, to_long(address), to_long(bytes), PROT_NONE, flags, -1, 0);
    if (result == -ENOMEM) return lengthen_to(address, bytes);
    if (is_error(result)) return false;
    if (result == to_long(address)) return true;
    unmap(reinterpret_cast<void*>(result), bytes);
    return false;
  }
  // At the limit of mappings (vm.max_map_count), the kernel refuses all new ones, even adjacent
  // ones. The mapping before can still be extended, with its own protection.
  [[nodiscard]] bool lengthen_to(void* address, std::size_t bytes) noexcept {
    const std::size_t page = page_size();
    return grow(reinterpret_cast<void*>(address_of(address) - page), page, page + bytes) == 0;
  }
  [[nodiscard]] void* reserve_zeros(std::size_t bytes) noexcept {
    void* const zeros = map_anonymous(bytes, PROT_READ);
    if (zeros != nullptr) dump(zeros, bytes, false);
    return zeros;
  }
  // Debuggers write all mapped addresses into a core file, present or not.
  static void dump(void* address, std::size_t bytes, bool wanted) noexcept {
    raw_syscall(SYS_madvise, to_long(address), to_long(bytes),
                wanted ? MADV_DODUMP : MADV_DONTDUMP);
  }
  [[nodiscard]] bool commit(void* address, std::size_t bytes) noexcept {
    return raw_syscall(SYS_mprotect, to_long(address), to_long(bytes), PROT_READ | PROT_WRITE) == 0;
  }
  [[nodiscard]] void* map(std::size_t bytes) noexcept {
    return map_anonymous(bytes, PROT_READ | PROT_WRITE);
  }
  void unmap(void* address, std::size_t bytes) noexcept {
    // ThreadSanitizer must see it, or the next mapping of these addresses would appear to race.
    if constexpr (kThreadSanitizer) return static_cast<void>(::munmap(address, bytes));
    raw_syscall(SYS_munmap, to_long(address), to_long(bytes));
  }
  [[nodiscard]] bool purge(void* address, std::size_t bytes) noexcept {
    return raw_syscall(SYS_madvise, to_long(address), to_long(bytes), MADV_DONTNEED) == 0;
  }
  // Most of the price of a small piece is that all processors of the process forget its addresses:
  // one call for many makes them do so once.
  [[nodiscard]] bool purge_each(const Piece* pieces, std::size_t count) noexcept {
    bool is_any = false;
    while (count > 1 && !no_batches_.load(std::memory_order_relaxed)) {
      static_assert(sizeof(Piece) == sizeof(iovec));
      const long done = raw_syscall(kProcessMadvise, kOwnProcess, to_long(pieces), to_long(count),
                                    MADV_DONTNEED, 0);
      if (done == -ENOSYS || done == -EBADF || done == -EPERM) no_batches_.store(true);
      auto left = static_cast<std::size_t>(done > 0 ? done : 0);
      if (left < pieces->bytes) break;
      is_any = true;
      for (; count > 0 && left >= pieces->bytes; --count) left -= pieces++->bytes;
    }
    for (; count > 0; --count, ++pieces) is_any |= purge(pieces->address, pieces->bytes);
    return is_any;
  }
  void populate(void* address, std::size_t bytes) noexcept {
    raw_syscall(SYS_madvise, to_long(address), to_long(bytes), kPopulateWrite);
  }
  // Guards without mappings of their own (Linux 6.13), only for heaps with option `hardened`.
  [[nodiscard]] std::size_t guard_bytes(bool wished) noexcept {
    return wished && has_light_guards() ? page_size() : 0;
  }
  [[nodiscard]] static bool guard(void* address, std::size_t bytes) noexcept {
    if (raw_syscall(SYS_madvise, to_long(address), to_long(bytes), kGuardInstall) == 0) return true;
    // The kernel works mapping by mapping, so some pages may be guarded already.
    static_cast<void>(unguard(address, bytes));
    return false;
  }
  [[nodiscard]] static bool unguard(void* address, std::size_t bytes) noexcept {
    return raw_syscall(SYS_madvise, to_long(address), to_long(bytes), kGuardRemove) == 0;
  }
  void prefer_huge(void* address, std::size_t bytes) noexcept {
    raw_syscall(SYS_madvise, to_long(address), to_long(bytes), MADV_HUGEPAGE);
  }
  void avoid_huge(void* address, std::size_t bytes) noexcept {
    raw_syscall(SYS_madvise, to_long(address), to_long(bytes), MADV_NOHUGEPAGE);
  }
  void prefer_huge_once(void* address, std::size_t bytes) noexcept {
    prefer_huge(address, bytes);
    touch_each_huge(address, bytes);
    avoid_huge(address, bytes);
  }
  // Makes no mapping, unlike the advice to have huge pages (Linux 6.1).
  void populate_huge(void* address, std::size_t bytes) noexcept {
    touch_each_huge(address, bytes);
    raw_syscall(SYS_madvise, to_long(address), to_long(bytes), kCollapse);
  }
  [[nodiscard]] int grow(void* address, std::size_t from, std::size_t to) noexcept {
    if (!is_granted(to)) return ENOMEM;
    const long result = raw_syscall(SYS_mremap, to_long(address), to_long(from), to_long(to), 0);
    return is_error(result) ? static_cast<int>(-result) : 0;
  }
  [[nodiscard]] bool move(void* address, std::size_t from, void* target, std::size_t to) noexcept {
    return raw_syscall(SYS_mremap, to_long(address), to_long(from), to_long(to),
                       MREMAP_MAYMOVE | MREMAP_FIXED, to_long(target)) == to_long(target);
  }
  // A move that the kernel refuses late has given the target back. So nothing moves after one.
  [[nodiscard]] Moved move_pages(void* address, std::size_t bytes, void* target) noexcept {
    if (kThreadSanitizer || !has_moves() || is_locked(address, bytes) || !has_room()) {
      return Moved::no;
    }
    if (move_only(address, bytes, target)) return Moved::yes;
    moves_.store(Ability::no, std::memory_order_relaxed);
    return Moved::lost;
  }
  void forget_advice(void* address, std::size_t bytes) noexcept {
    static_cast<void>(commit(address, bytes));
    for (const long advice : {kDoFork, kKeepOnFork}) {
      raw_syscall(SYS_madvise, to_long(address), to_long(bytes), advice);
    }
  }
  // Asks to lengthen it, which fails behind its end first.
  [[nodiscard]] bool is_one_mapping(void* address, std::size_t bytes) noexcept {
    const int error = grow(address, bytes, bytes + page_size_);
    if (error == 0) unmap(static_cast<char*>(address) + bytes, page_size_);
    return error == 0 || error == ENOMEM;
  }
  [[nodiscard]] bool renew(void* address, std::size_t bytes) noexcept {
    const long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (is_error(raw_syscall(calls::kMap, to_long(address), to_long(bytes), PROT_READ | PROT_WRITE,
                             flags, -1, 0))) {
      return false;
    }
    // Since mlockall(MCL_FUTURE), new pages are present and locked.
    if (is_locked(address, bytes)) {
      raw_syscall(SYS_munlock, to_long(address), to_long(bytes));
      static_cast<void>(purge(address, bytes));
    }
    return true;
  }
  [[nodiscard]] void* map_huge(std::size_t bytes, unsigned shift, int* error) noexcept {
    // Huge pages are reserved for the mapping at once, so faults never lack them.
    const unsigned kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (shift << kHugeShift);
    const long result = raw_syscall(calls::kMap, 0, to_long(bytes), PROT_READ | PROT_WRITE,
                                    static_cast<long>(kind), -1, 0);
    if (is_error(result)) {
      *error = static_cast<int>(-result);
      return nullptr;
    }
    return reinterpret_cast<void*>(result);
  }
  [[nodiscard]] static int peek(void* to, Address from, std::size_t bytes) noexcept {
    const iovec target{to, bytes};
    const iovec source{reinterpret_cast<void*>(from), bytes};
    const long copied = raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_gettid), to_long(&target),
                                    1, to_long(&source), 1, 0);
    if (is_error(copied)) return static_cast<int>(-copied);
    return static_cast<std::size_t>(copied) == bytes ? 0 : EFAULT;
  }
  [[nodiscard]] static bool look(void* address, std::size_t bytes, unsigned char* pages) noexcept {
    return raw_syscall(SYS_mincore, to_long(address), to_long(bytes), to_long(pages)) == 0;
  }
  // Samples the pages: to examine all would take longer than to use the present ones. Most blocks
  // are written from the start, so `exact` looks for the end of what is present page by page.
  [[nodiscard]] ALLOD_NOINLINE std::size_t present_bytes(void* address, std::size_t bytes,
                                                         bool exact = false) noexcept {
    std::size_t present = 0;
    std::size_t before = 0;  // in the table before
    bool has_ended = !exact;
    for (std::size_t done = 0; done < bytes; done += kTable) {
      const Address table = address_of(address) + done;
      const std::size_t whole = bytes - done < kTable ? bytes - done : kTable;
      std::size_t here = sample(table, whole);
      if (!has_ended && here < whole / 2) {
        has_ended = true;
        if (done != 0) present += present_in(table - kTable, kTable) - before;
        here = present_in(table, whole);
      }
      present += here;
      before = here;
    }
    return present;
  }
  [[nodiscard]] int lock(void* address, std::size_t bytes) noexcept {
    return static_cast<int>(-raw_syscall(SYS_mlock, to_long(address), to_long(bytes)));
  }
  [[nodiscard]] int bind(void* address, std::size_t bytes, std::uint64_t nodes) noexcept {
    // The kernel uses one bit less.
    constexpr long kBits = 65;
    std::uint64_t mask[2] = {nodes, 0};
    return static_cast<int>(-raw_syscall(SYS_mbind, to_long(address), to_long(bytes), kBindStrictly,
                                         to_long(&mask), kBits, 0));
  }
  // A kernel without names is asked only once, since the program may forbid the call later.
  void name(void* address, std::size_t bytes, const char* text) noexcept {
    if (no_names_.load(std::memory_order_relaxed)) return;
    const long failed = raw_syscall(SYS_prctl, kSetVma, kSetVmaAnonymousName, to_long(address),
                                    to_long(bytes), to_long(text));
    if (failed != 0) no_names_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t now_ms() const noexcept {
    timespec now{};
    Vdso::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
           static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
  }
  [[nodiscard]] std::uint32_t thread_id() const noexcept {
    return static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  }
  [[nodiscard]] std::uint32_t processors() const noexcept {
    std::uint64_t mask[16] = {};  // for 1024 processors
    const long bytes = raw_syscall(SYS_sched_getaffinity, 0, sizeof mask, to_long(&mask));
    std::uint32_t count = 0;
    for (long word = 0; word * 8 < bytes; ++word) count += count_bits(mask[word]);
    return count > 0 ? count : 1;
  }
  [[nodiscard]] std::uint32_t processor_quota() const noexcept {
    return ControlGroups{}.processor_quota();
  }
  // From the thread's area for sequences, if it has one, else from the vDSO.
  [[nodiscard]] static std::uint32_t processor() noexcept {
    const std::int32_t number = SequenceArea::processor();
    return number >= 0 ? static_cast<std::uint32_t>(number) : Vdso::processor();
  }
  [[nodiscard]] static std::uint32_t nodes() noexcept { return LinuxNodes::count(); }
  [[nodiscard]] static std::uint32_t node() noexcept { return LinuxNodes::here(); }
  [[nodiscard]] static std::uint32_t node_of(std::uint32_t processor) noexcept {
    return LinuxNodes::of(processor);
  }
  using Restartable = os::Restartable;
  using Guest = LinuxGuest;
  using ThreadEnd = os::ThreadEnd;
  static ALLOD_HOT void watch_forks(void (*before)(), void (*in_parent)(),
                                    void (*in_child)()) noexcept {
    at_fork(before, in_parent, in_child);
  }
  using Purger = LinuxHelper<struct Purging>;
  void after_fork_in_child() noexcept {
    LinuxGuest::note_owner();
    Purger::reset_after_fork();
  }
  // Not for a guest: its threads end with it.
  [[nodiscard]] bool start_helper(void (*function)(void*), void* argument) noexcept {
    return !LinuxGuest::is_here() && Purger::start(function, argument);
  }
  // Bounded, so that a helper that waits for a processor does not delay a fork for long.
  [[nodiscard]] bool wait_for_helper() noexcept {
    constexpr std::uint32_t kPatienceMs = 100;
    if (Purger::is_gone()) return true;
    return !LinuxGuest::is_here() && Purger::wait_until_gone(kPatienceMs);
  }
  // See os::Following.
  static void begin_helper() noexcept { rights_.start(); }
  static void follow_rights() noexcept { rights_.follow(); }

  [[nodiscard]] bool start_barriers() noexcept {
    return !kThreadSanitizer &&
           raw_syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  }
  // Fallback if a seccomp filter refuses the call: after a millisecond, every thread's stores are
  // visible.
  void barrier() noexcept {
    if (raw_syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
    std::atomic<std::uint32_t> nobody{0};
    futex_wait_ms(&nobody, 0, 1);
  }
  void yield() noexcept { raw_syscall(SYS_sched_yield); }
  static void* self() noexcept { return thread_pointer(); }
  static ALLOD_INLINE void*& own_word() noexcept { return own_word_; }
  [[nodiscard]] static std::uint64_t block_signals() noexcept {
    constexpr std::uint64_t kAll = ~std::uint64_t{0};
    std::uint64_t before = 0;
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, to_long(&kAll), to_long(&before), sizeof kAll);
    return before;
  }
  static void restore_signals(std::uint64_t mask) noexcept {
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, to_long(&mask), 0, sizeof mask);
  }
  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    raw_syscall(calls::kWait, to_long(word), FUTEX_WAIT_PRIVATE, expected);
  }
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    const timespec timeout{static_cast<time_t>(microseconds / 1'000'000),
                           static_cast<long>(microseconds % 1'000'000) * 1000};
    raw_syscall(calls::kWait, to_long(word), FUTEX_WAIT_PRIVATE, expected, to_long(&timeout));
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    futex_wait_us(word, expected, std::uint64_t{milliseconds} * 1000);
  }
  static void futex_wake(std::atomic<std::uint32_t>* word, int count) noexcept {
    raw_syscall(calls::kWait, to_long(word), FUTEX_WAKE_PRIVATE, count);
  }

 protected:
  // The soft limit on a resource; none if the system does not say.
  [[nodiscard]] static std::uint64_t limit_of(int resource) noexcept {
    rlimit64 limit{};
    const long failed = raw_syscall(SYS_prlimit64, 0, resource, 0, to_long(&limit));
    return failed == 0 ? limit.rlim_cur : RLIM64_INFINITY;
  }
  // Whether the kernel would grant so much without overcommitting; it may refuse more than the
  // physical memory. Asks only for sizes whose page map alone takes much memory.
  [[nodiscard]] static bool is_granted(std::size_t bytes) noexcept {
    constexpr std::uint64_t kLarge = std::uint64_t{64} << 30;
    if (bytes < kLarge) return true;
    const long result = raw_syscall(calls::kMap, 0, to_long(bytes), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_error(result)) return false;
    raw_syscall(SYS_munmap, result, to_long(bytes));
    return true;
  }
  [[nodiscard]] bool has_light_guards() noexcept {
    return has(light_guards_, 1, [&](void* page) noexcept { return guard(page, page_size()); });
  }
  // Emulators of processors may forget the pages, and let nobody touch them any more.
  [[nodiscard]] bool has_moves() noexcept {
    return has(moves_, 2, [&](void* pages) noexcept {
      auto* const from = static_cast<volatile unsigned char*>(pages);
      unsigned char present = 0;
      *from = 1;
      return move_only(pages, page_size_, static_cast<char*>(pages) + page_size_) &&
             from[page_size_] == 1 && look(pages, page_size_, &present) && *from == 0;
    });
  }
  enum class Ability : std::uint8_t { unknown, no, yes };
  // Tries it once, on new pages.
  template <class Try>
  [[nodiscard]] bool has(std::atomic<Ability>& ability, std::size_t pages, Try&& works) noexcept {
    const Ability known = ability.load(std::memory_order_relaxed);
    if (known != Ability::unknown) return known == Ability::yes;
    void* const memory = map(pages * page_size_);
    if (memory == nullptr) return false;
    const bool is_able = works(memory);
    unmap(memory, pages * page_size_);
    ability.store(is_able ? Ability::yes : Ability::no, std::memory_order_relaxed);
    return is_able;
  }

 private:
  // Values of <linux/prctl.h> (5.17), which older headers lack.
  static constexpr long kSetVma = 0x53564d41;
  static constexpr long kSetVmaAnonymousName = 0;
  // MAP_FIXED_NOREPLACE of <linux/mman.h>.
  static constexpr long kFixedNoReplace = 0x100000;
  // MPOL_BIND of <linux/mempolicy.h>, and MAP_HUGE_SHIFT of <linux/mman.h>.
  static constexpr long kBindStrictly = 2;
  static constexpr unsigned kHugeShift = 26;

  template <class T>
  static long to_long(T value) noexcept {
    if constexpr (std::is_pointer_v<T>) {
      return static_cast<long>(reinterpret_cast<std::uintptr_t>(value));
    } else {
      return static_cast<long>(value);
    }
  }
  static bool is_error(long result) noexcept { return result < 0 && result > -4096; }
  static bool is_aligned(void* address, std::size_t alignment) noexcept {
    return (address_of(address) & (alignment - 1)) == 0;
  }
  // The range of a page table.
  static constexpr std::size_t kTable = std::size_t{2} << 20;
  // Present bytes of at most that; all if unknown.
  [[nodiscard]] std::size_t present_in(Address from, std::size_t bytes) const noexcept {
    unsigned char pages[kTable / 4096] = {};
    if (!look(reinterpret_cast<void*>(from), bytes, pages)) return bytes;
    std::size_t found = 0;
    for (std::size_t i = 0; i < bytes / page_size_; ++i) found += pages[i] & 1U;
    return found * page_size_;
  }
  // The same by 1/8 of them, at varying positions.
  [[nodiscard]] std::size_t sample(Address table, std::size_t bytes) const noexcept {
    constexpr std::size_t kPart = kTable / 8;
    if (bytes <= kPart) return present_in(table, bytes);
    const std::size_t skipped = bytes == kTable ? table / kTable * 5 % 8 * kPart : 0;
    return present_in(table + skipped, kPart) / page_size_ * bytes / kPart * page_size_;
  }
  static void touch_each_huge(void* address, std::size_t bytes) noexcept {
    for (std::size_t at = 0; at < bytes; at += kTable) {
      *(static_cast<volatile unsigned char*>(address) + at) = 0;
    }
  }
  // Whether a limit of addresses or data leaves room for one page. Without it, the kernel would
  // give the target of a move back, and then refuse the move.
  [[nodiscard]] bool has_room() noexcept {
    if (limit_of(RLIMIT_AS) == RLIM64_INFINITY && limit_of(RLIMIT_DATA) == RLIM64_INFINITY) {
      return true;
    }
    void* const page = map(page_size_);
    if (page != nullptr) unmap(page, page_size_);
    return page != nullptr;
  }
  [[nodiscard]] static bool move_only(void* address, std::size_t bytes, void* target) noexcept {
    return raw_syscall(SYS_mremap, to_long(address), to_long(bytes), to_long(bytes),
                       MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap,
                       to_long(target)) == to_long(target);
  }
  // Whether some of it is. For anonymous memory, this call only answers that.
  [[nodiscard]] static bool is_locked(void* address, std::size_t bytes) noexcept {
    return raw_syscall(SYS_msync, to_long(address), to_long(bytes), MS_INVALIDATE) == -EBUSY;
  }
  static void* map_anonymous(std::size_t bytes, int protection) noexcept {
    const long result = raw_syscall(calls::kMap, 0, to_long(bytes), protection,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return is_error(result) ? nullptr : reinterpret_cast<void*>(result);
  }
  // At the highest address: the kernel puts mappings below each other, and neighbours merge.
  [[nodiscard]] void* reserve_trimmed(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes + alignment < bytes) return nullptr;
    void* const raw = map_anonymous(bytes + alignment, PROT_NONE);
    if (raw == nullptr) return nullptr;
    const Address start = address_of(raw);
    const Address aligned = align_down(start + alignment, alignment);
    const std::size_t head = aligned - start;
    const std::size_t tail = alignment - head;
    unmap(raw, head);
    if (tail != 0) unmap(reinterpret_cast<void*>(aligned + bytes), tail);
    return reinterpret_cast<void*>(aligned);
  }

  // SYS_process_madvise (5.10), and PIDFD_SELF of <linux/pidfd.h> (6.14).
  static constexpr long kProcessMadvise = 440;
  static constexpr long kOwnProcess = -10000;
  // Values of <linux/mman.h> (6.13), which older headers lack.
  static constexpr long kGuardInstall = 102;
  static constexpr long kGuardRemove = 103;
  static constexpr long kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  static constexpr long kDontUnmap = 4;       // MREMAP_DONTUNMAP, Linux 5.7
  static constexpr long kCollapse = 25;       // MADV_COLLAPSE, Linux 6.1
  static constexpr long kDoFork = 11;
  static constexpr long kKeepOnFork = 19;
  std::size_t page_size_ = 4096;
  std::atomic<Ability> light_guards_{Ability::unknown};
  std::atomic<Ability> moves_{Ability::unknown};
  std::atomic<bool> no_names_{false};
  std::atomic<bool> no_batches_{false};
  static inline constinit LinuxRights rights_;  // of the purging thread
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local void* own_word_ = nullptr;
};

static_assert(Guarding<Linux> && Following<Linux> && Hosting<Linux>);

}  // namespace allod::os
