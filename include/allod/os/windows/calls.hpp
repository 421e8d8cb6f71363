// Calls of Windows, without <windows.h>, whose macros would take names of ours and of the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/base/cpu.hpp"

// Names of our own, so that a program may include <windows.h> as well.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* allod_win_alloc(void* address, std::size_t bytes, std::uint32_t type,
                      std::uint32_t protection) noexcept __asm__("VirtualAlloc");
int allod_win_free(void* address, std::size_t bytes, std::uint32_t type) noexcept
    __asm__("VirtualFree");
int allod_win_lock(void* address, std::size_t bytes) noexcept __asm__("VirtualLock");
void allod_win_system_info(void* info) noexcept __asm__("GetSystemInfo");
std::size_t allod_win_large_page() noexcept __asm__("GetLargePageMinimum");
int allod_win_read(void* process, const void* from, void* to, std::size_t bytes,
                   std::size_t* done) noexcept __asm__("ReadProcessMemory");
int allod_win_working_set(void* process, void* pages, std::uint32_t bytes) noexcept
    __asm__("K32QueryWorkingSetEx");
int allod_win_job(void* job, int kind, void* answer, std::uint32_t bytes,
                  std::uint32_t* done) noexcept __asm__("QueryInformationJobObject");
int allod_win_affinity(void* process, std::uint64_t* own, std::uint64_t* systems) noexcept
    __asm__("GetProcessAffinityMask");
std::uint32_t allod_win_processors(std::uint16_t group) noexcept __asm__("GetActiveProcessorCount");
std::uint32_t allod_win_processor() noexcept __asm__("GetCurrentProcessorNumber");
std::uint32_t allod_win_thread_id() noexcept __asm__("GetCurrentThreadId");
std::uint64_t allod_win_ticks() noexcept __asm__("GetTickCount64");
void allod_win_flush_buffers() noexcept __asm__("FlushProcessWriteBuffers");
int allod_win_yield() noexcept __asm__("SwitchToThread");
void allod_win_sleep(std::uint32_t milliseconds) noexcept __asm__("Sleep");
void* allod_win_thread(void* security, std::size_t stack, std::uint32_t (*function)(void*),
                       void* argument, std::uint32_t flags, std::uint32_t* id) noexcept
    __asm__("CreateThread");
std::uint32_t allod_win_wait(void* object, std::uint32_t milliseconds) noexcept
    __asm__("WaitForSingleObject");
int allod_win_close(void* object) noexcept __asm__("CloseHandle");
void* allod_win_on_exception(std::uint32_t first, long (*handler)(void*)) noexcept
    __asm__("AddVectoredExceptionHandler");
void* allod_win_module(const char* name) noexcept __asm__("GetModuleHandleA");
void* allod_win_function(void* module, const char* name) noexcept __asm__("GetProcAddress");
// NOLINTEND(readability-identifier-naming)
}

namespace allod::os {

// MEM_... and PAGE_... of <winnt.h>.
inline constexpr std::uint32_t kWinCommit = 0x1000;
inline constexpr std::uint32_t kWinReserve = 0x2000;
inline constexpr std::uint32_t kWinDecommit = 0x4000;
inline constexpr std::uint32_t kWinRelease = 0x8000;
inline constexpr std::uint32_t kWinLargePages = 0x20000000;
inline constexpr std::uint32_t kWinNoAccess = 1;
inline constexpr std::uint32_t kWinReadWrite = 4;

// What GetCurrentProcess() returns.
[[nodiscard]] inline void* own_process() noexcept {
  return reinterpret_cast<void*>(~std::uintptr_t{0});
}

// Restores the thread's last error, which calls that fail change.
class LastError {
 public:
  LastError() noexcept { __asm__ volatile("movl %%gs:0x68, %0" : "=r"(error_)); }
  ~LastError() { __asm__ volatile("movl %0, %%gs:0x68" : : "r"(error_)); }
  LastError(const LastError&) = delete;
  LastError& operator=(const LastError&) = delete;

 private:
  std::uint32_t error_;
};

// Calls that not every Windows has: null until find(), and where they are missing.
class NewerCalls {
 public:
  using Alloc = void* (*)(void*, void*, std::size_t, std::uint32_t, std::uint32_t, void*,
                          std::uint32_t) noexcept;
  using Wait = int (*)(volatile void*, void*, std::size_t, std::uint32_t) noexcept;
  using Wake = void (*)(void*) noexcept;
  using Ask = unsigned char (*)() noexcept;

  // When the module is loaded: the loader's lock is held then, and slow paths must not wait for it.
  static void find() noexcept {
    const LastError kept;
    void* const base = allod_win_module("kernelbase.dll");
    void* const system = allod_win_module("ntdll.dll");
    find_in(base, "VirtualAlloc2", alloc);
    find_in(base, "WaitOnAddress", wait);
    find_in(base, "WakeByAddressSingle", wake_one);
    find_in(base, "WakeByAddressAll", wake_all);
    find_in(system, "RtlDllShutdownInProgress", ends);
  }

  static inline constinit std::atomic<Alloc> alloc{nullptr};
  static inline constinit std::atomic<Wait> wait{nullptr};
  static inline constinit std::atomic<Wake> wake_one{nullptr};
  static inline constinit std::atomic<Wake> wake_all{nullptr};
  static inline constinit std::atomic<Ask> ends{nullptr};

 private:
  template <class Call>
  static void find_in(void* module, const char* name, std::atomic<Call>& call) noexcept {
    if (module == nullptr) return;
    call.store(reinterpret_cast<Call>(allod_win_function(module, name)), std::memory_order_relaxed);
  }
};

}  // namespace allod::os
