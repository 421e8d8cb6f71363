// Windows by calls of kernel32, which keep the thread's last error.
#pragma once

#include <errno.h>

#include "allod/base/thread_local.hpp"
#include "allod/os/absent.hpp"
#include "allod/os/platform.hpp"
#include "allod/os/present_pages.hpp"
#include "allod/os/windows/calls.hpp"
#include "allod/os/windows/demand_zeros.hpp"
#include "allod/os/windows/helper.hpp"
#include "allod/os/windows/job.hpp"
#include "allod/os/windows/thread_end.hpp"

namespace allod::os {

// A reservation is released as a whole, and reservations do not grow. So gathers() is false, and
// unmap() is given what one call has reserved, as all callers do where nothing is gathered.
class Windows : public PlainPages {
 public:
  void start() noexcept {
    struct {
      std::uint32_t processor_kind;
      std::uint32_t page_bytes;
      void* rest[5];
    } info{};
    allod_win_system_info(&info);
    if (info.page_bytes != 0) page_size_ = info.page_bytes;
  }
  [[nodiscard]] std::size_t page_size() const noexcept { return page_size_; }
  [[nodiscard]] static std::size_t address_space_limit() noexcept { return 0; }
  [[nodiscard]] static std::size_t memory_limit() noexcept { return Job::memory_limit(); }

  [[nodiscard]] static void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    const LastError kept;
    // Reservations begin at multiples of 64 KiB.
    if (alignment <= kSliceBytes) {
      return allod_win_alloc(nullptr, bytes, kWinReserve, kWinNoAccess);
    }
    if (const auto alloc = NewerCalls::alloc.load(std::memory_order_relaxed)) {
      AddressRequirements wishes{nullptr, nullptr, alignment};
      Parameter parameter{kAddressRequirements, &wishes};
      return alloc(own_process(), nullptr, bytes, kWinReserve, kWinNoAccess, &parameter, 1);
    }
    return reserve_within(bytes, alignment);
  }
  [[nodiscard]] static bool gathers() noexcept { return false; }
  [[nodiscard]] static bool reserve_at(void* address, std::size_t bytes) noexcept {
    const LastError kept;
    return allod_win_alloc(address, bytes, kWinReserve, kWinNoAccess) != nullptr;
  }
  [[nodiscard]] static void* reserve_zeros(std::size_t bytes) noexcept {
    void* const memory = reserve(bytes, kSliceBytes);
    if (memory == nullptr || DemandZeros::add(memory, bytes)) return memory;
    unmap(memory, bytes);
    return nullptr;
  }
  [[nodiscard]] static bool commit(void* address, std::size_t bytes) noexcept {
    const LastError kept;
    return allod_win_alloc(address, bytes, kWinCommit, kWinReadWrite) != nullptr;
  }
  [[nodiscard]] static void* map(std::size_t bytes) noexcept {
    const LastError kept;
    return allod_win_alloc(nullptr, bytes, kWinReserve | kWinCommit, kWinReadWrite);
  }
  static void unmap(void* address, std::size_t) noexcept {
    DemandZeros::remove(address);
    allod_win_free(address, 0, kWinRelease);
  }
  // MEM_RESET and DiscardVirtualMemory would leave it open what the pages hold, but blocks on them
  // may be promised as zeros.
  [[nodiscard]] static bool purge(void* address, std::size_t bytes) noexcept {
    const LastError kept;
    if (allod_win_free(address, bytes, kWinDecommit) == 0) return false;
    // The process has just given back as much as it asks for. If others took it meanwhile, it waits
    // for them: the heap relies on this memory.
    for (int attempt = 0; attempt < kPatience; ++attempt) {
      if (commit(address, bytes)) return true;
      allod_win_sleep(1);
    }
    check_failed("the system does not give back memory that was purged");
  }
  [[nodiscard]] static bool purge_each(const Piece* pieces, std::size_t count) noexcept {
    bool is_any = false;
    for (; count > 0; --count, ++pieces) is_any |= purge(pieces->address, pieces->bytes);
    return is_any;
  }
  [[nodiscard]] static bool move(void*, std::size_t, void* target, std::size_t to) noexcept {
    unmap(target, to);
    return false;
  }

  // Needs the privilege to lock pages (SeLockMemoryPrivilege).
  [[nodiscard]] static void* map_huge(std::size_t bytes, unsigned shift, int* error) noexcept {
    const LastError kept;
    *error = ENOMEM;
    if (allod_win_large_page() != std::size_t{1} << shift) return nullptr;
    return allod_win_alloc(nullptr, bytes, kWinReserve | kWinCommit | kWinLargePages,
                           kWinReadWrite);
  }
  [[nodiscard]] bool look(void* address, std::size_t bytes, unsigned char* pages) const noexcept {
    const LastError kept;
    for (std::size_t done = 0; done < bytes; done += kLook) {
      WorkingSet set[PresentPages::kMost] = {};
      const std::size_t part = bytes - done < kLook ? bytes - done : kLook;
      const std::size_t count = part / page_size_;
      const Address from = address_of(address) + done;
      for (std::size_t i = 0; i < count; ++i) set[i].address = from + i * page_size_;
      if (allod_win_working_set(own_process(), set,
                                static_cast<std::uint32_t>(count * sizeof(WorkingSet))) == 0) {
        return false;
      }
      for (std::size_t i = 0; i < count; ++i) {
        *pages++ = static_cast<unsigned char>(set[i].flags & 1);
      }
    }
    return true;
  }
  [[nodiscard]] std::size_t present_bytes(void* address, std::size_t bytes,
                                          bool exact = false) const noexcept {
    return PresentPages::estimate(*this, address, bytes, exact);
  }
  [[nodiscard]] static int peek(void* to, Address from, std::size_t bytes) noexcept {
    const LastError kept;
    std::size_t done = 0;
    const int copied =
        allod_win_read(own_process(), reinterpret_cast<const void*>(from), to, bytes, &done);
    return copied != 0 && done == bytes ? 0 : EFAULT;
  }
  [[nodiscard]] static int lock(void* address, std::size_t bytes) noexcept {
    const LastError kept;
    return allod_win_lock(address, bytes) != 0 ? 0 : ENOMEM;
  }

  [[nodiscard]] static std::uint64_t now_ms() noexcept { return allod_win_ticks(); }
  static void after_fork_in_child() noexcept {}
  [[nodiscard]] static std::uint32_t thread_id() noexcept { return allod_win_thread_id(); }
  // Those of the process's group, or of all groups if it has threads in several.
  [[nodiscard]] static std::uint32_t processors() noexcept {
    const LastError kept;
    constexpr std::uint16_t kAllGroups = 0xffff;
    std::uint64_t own = 0;
    std::uint64_t systems = 0;
    std::uint32_t count = 0;
    if (allod_win_affinity(own_process(), &own, &systems) != 0) count = count_bits(own);
    if (count == 0) count = allod_win_processors(kAllGroups);
    return count > 0 ? count : 1;
  }
  [[nodiscard]] static std::uint32_t processor_quota() noexcept {
    return Job::processor_quota(processors());
  }
  [[nodiscard]] static std::uint32_t processor() noexcept { return allod_win_processor(); }

  using Restartable = NoSequences;
  using Guest = NoGuests;
  using ThreadEnd = os::ThreadEnd;
  static void watch_forks(void (*)(), void (*)(), void (*)()) noexcept {}

  [[nodiscard]] static bool start_helper(void (*function)(void*), void* argument) noexcept {
    return WindowsHelper::start(function, argument);
  }
  [[nodiscard]] static bool wait_for_helper() noexcept { return WindowsHelper::wait_until_gone(); }

  [[nodiscard]] static bool start_barriers() noexcept { return true; }
  static void barrier() noexcept { allod_win_flush_buffers(); }
  static void yield() noexcept { allod_win_yield(); }
  // The thread's block, which names itself.
  [[nodiscard]] static void* self() noexcept {
    void* block;
    __asm__("movq %%gs:0x30, %0" : "=r"(block));
    return block;
  }
  static ALLOD_INLINE void*& own_word() noexcept { return own_word_; }
  // There are none that interrupt a thread.
  [[nodiscard]] static std::uint64_t block_signals() noexcept { return 0; }
  static void restore_signals(std::uint64_t) noexcept {}

  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    wait(word, expected, kForEver);
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    wait(word, expected, milliseconds);
  }
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    wait(word, expected, static_cast<std::uint32_t>((microseconds + 999) / 1000));
  }
  static void futex_wake(std::atomic<std::uint32_t>* word, int count) noexcept {
    const auto& call = count == 1 ? NewerCalls::wake_one : NewerCalls::wake_all;
    if (const auto wake = call.load(std::memory_order_relaxed)) wake(word);
  }

 private:
  static constexpr std::uint32_t kForEver = ~0U;
  static constexpr int kPatience = 10'000;
  static constexpr std::size_t kLook = PresentPages::kPart;
  static constexpr std::size_t kLeastPage = 4096;

  // PSAPI_WORKING_SET_EX_INFORMATION of <psapi.h>; the lowest flag: present.
  struct WorkingSet {
    Address address;
    std::uint64_t flags;
  };
  // MEM_EXTENDED_PARAMETER and MEM_ADDRESS_REQUIREMENTS of <winnt.h>.
  struct AddressRequirements {
    void* lowest;
    void* highest;
    std::size_t alignment;
  };
  struct Parameter {
    std::uint64_t kind;
    void* value;
  };
  static constexpr std::uint64_t kAddressRequirements = 1;

  // Before Windows 10, version 1803. Another thread may take the addresses in between.
  [[nodiscard]] static void* reserve_within(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes + alignment < bytes) return nullptr;
    for (int attempt = 0; attempt < 16; ++attempt) {
      void* const raw = allod_win_alloc(nullptr, bytes + alignment, kWinReserve, kWinNoAccess);
      if (raw == nullptr) return nullptr;
      allod_win_free(raw, 0, kWinRelease);
      void* const aligned = reinterpret_cast<void*>(align_up(address_of(raw), alignment));
      if (reserve_at(aligned, bytes)) return aligned;
    }
    return nullptr;
  }

  // At the end of a process, the system ends its other threads first, whatever they hold. The last
  // one must not wait for them: 0 is the state of what nobody holds.
  static ALLOD_COLD void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                              std::uint32_t milliseconds) noexcept {
    const LastError kept;
    const auto ends = NewerCalls::ends.load(std::memory_order_relaxed);
    if (milliseconds == kForEver && ends != nullptr && ends() != 0) return word->store(0);
    if (const auto wait = NewerCalls::wait.load(std::memory_order_relaxed)) {
      wait(word, &expected, sizeof expected, milliseconds);
    } else if (word->load() == expected) {
      allod_win_sleep(milliseconds < kNapMs ? milliseconds : kNapMs);
    }
  }
  // Before Windows 8: naps, of which nobody wakes a thread.
  static constexpr std::uint32_t kNapMs = 1;

  std::size_t page_size_ = kLeastPage;
  ALLOD_THREAD_LOCAL(void*, own_word_, nullptr);
};

static_assert(Hosting<Windows>);

}  // namespace allod::os
