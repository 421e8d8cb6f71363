// macOS by calls of Mach and BSD, which keep errno.
#pragma once

#include <mach/mach_init.h>
#include <mach/vm_map.h>
#include <mach/vm_statistics.h>
#include <signal.h>
#include <time.h>

#include "allod/os/bsd/bsd.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
// Waits while a word has a value, for microseconds, or 0: for ever. Apple publishes no header for
// them; its C++ library waits by them since macOS 10.15 (libc++, src/atomic.cpp).
int allod_darwin_wait(std::uint32_t operation, void* word, std::uint64_t value,
                      std::uint32_t microseconds) noexcept __asm__("___ulock_wait");
int allod_darwin_wake(std::uint32_t operation, void* word, std::uint64_t value) noexcept
    __asm__("___ulock_wake");
// Of <mach/mach_vm.h>, which not all compilers bring.
kern_return_t allod_darwin_map(vm_map_t task, std::uint64_t* address, std::uint64_t bytes,
                               std::uint64_t mask, int flags, mem_entry_name_port_t object,
                               std::uint64_t offset, boolean_t copies, vm_prot_t now,
                               vm_prot_t most, vm_inherit_t inherits) noexcept
    __asm__("_mach_vm_map");
kern_return_t allod_darwin_read(vm_map_t task, std::uint64_t from, std::uint64_t bytes,
                                std::uint64_t to, std::uint64_t* copied) noexcept
    __asm__("_mach_vm_read_overwrite");
// Of <pthread.h>, since macOS 11: the processor of the calling thread.
int allod_darwin_processor(std::size_t* number) noexcept __asm__("_pthread_cpu_number_np");
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

namespace allod::os {

// The mark that vmmap shows: VM_MEMORY_APPLICATION_SPECIFIC_1.
inline constexpr int kDarwinMark = VM_MAKE_TAG(240);

class Darwin : public Bsd<kDarwinMark> {
 public:
  // RLIMIT_AS is that of resident memory there, and nothing enforces it.
  [[nodiscard]] static std::size_t address_space_limit() noexcept { return 0; }
  [[nodiscard]] static void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    return reserve_somewhere(0, bytes, alignment - 1, VM_FLAGS_ANYWHERE);
  }
  [[nodiscard]] static bool reserve_at(void* address, std::size_t bytes) noexcept {
    return reserve_somewhere(address_of(address), bytes, 0, VM_FLAGS_FIXED) != nullptr;
  }
  [[nodiscard]] static int peek(void* to, Address from, std::size_t bytes) noexcept {
    std::uint64_t copied = 0;
    const kern_return_t failed =
        allod_darwin_read(mach_task_self(), from, bytes, address_of(to), &copied);
    return failed == KERN_SUCCESS && copied == bytes ? 0 : EFAULT;
  }

  [[nodiscard]] static std::uint64_t now_ms() noexcept {
    return clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX) / 1'000'000;
  }
  [[nodiscard]] static std::uint32_t thread_id() noexcept {
    return pthread_mach_thread_np(pthread_self());
  }
  [[nodiscard]] static std::uint32_t processor() noexcept {
    std::size_t number = 0;
    return allod_darwin_processor(&number) == 0 ? static_cast<std::uint32_t>(number) : 0;
  }
  [[nodiscard]] static std::uint64_t block_signals() noexcept {
    constexpr sigset_t kAll = ~sigset_t{0};
    sigset_t before = 0;
    pthread_sigmask(SIG_SETMASK, &kAll, &before);
    return before;
  }
  static void restore_signals(std::uint64_t mask) noexcept {
    const auto before = static_cast<sigset_t>(mask);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    allod_darwin_wait(kCompareAndWait, word, expected, 0);
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    futex_wait_us(word, expected, std::uint64_t{milliseconds} * 1000);
  }
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    constexpr std::uint32_t kMost = ~0U;
    if (microseconds == 0) microseconds = 1;
    allod_darwin_wait(kCompareAndWait, word, expected,
                      microseconds < kMost ? static_cast<std::uint32_t>(microseconds) : kMost);
  }
  static void futex_wake(std::atomic<std::uint32_t>* word, int count) noexcept {
    allod_darwin_wake(count == 1 ? kCompareAndWait : kCompareAndWait | kWakeAll, word, 0);
  }

 private:
  // UL_COMPARE_AND_WAIT with ULF_NO_ERRNO, and ULF_WAKE_ALL, of Apple's <sys/ulock.h>.
  static constexpr std::uint32_t kCompareAndWait = 0x01000001;
  static constexpr std::uint32_t kWakeAll = 0x00000100;

  // `mask`: bits of the address that have to be 0.
  [[nodiscard]] static void* reserve_somewhere(Address from, std::size_t bytes, std::size_t mask,
                                               int flags) noexcept {
    std::uint64_t address = from;
    const kern_return_t failed = allod_darwin_map(
        mach_task_self(), &address, bytes, mask, flags | kDarwinMark, MEMORY_OBJECT_NULL, 0,
        /*copy=*/0, VM_PROT_NONE, VM_PROT_ALL, VM_INHERIT_DEFAULT);
    return failed == KERN_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
  }
};

static_assert(Hosting<Darwin>);

}  // namespace allod::os
