// The auxiliary vector, read from the kernel: getauxval() may be interposed by code that allocates.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

// Thread-safe, async-signal-safe, and usable without a C library. Makes up to four system calls the
// first time, none later.
class Auxiliary {
 public:
  // The value of an entry of kTypes; 0 if the kernel has not given it.
  [[nodiscard]] static unsigned long value(unsigned long type) noexcept {
    if (__builtin_expect(!is_known_.load(std::memory_order_acquire), 0)) read();
    for (std::size_t i = 0; i < kCount; ++i) {
      if (kTypes[i] == type) return values_[i].load(std::memory_order_relaxed);
    }
    return 0;
  }

 private:
  static constexpr unsigned long kTypes[] = {AT_PAGESZ, AT_PHDR,         AT_RANDOM,
                                             AT_EXECFN, AT_UID,          AT_EUID,
                                             AT_HWCAP2, AT_SYSINFO_EHDR, AT_SECURE};
  static constexpr std::size_t kCount = sizeof kTypes / sizeof kTypes[0];
  struct Vector {
    unsigned long words[128] = {};  // pairs of type and value
  };

  // Concurrent reads find the same values. `is_known_` publishes them.
  static ALLOD_COLD void read() noexcept {
    Vector vector;
    // The file first: valgrind and emulators emulate it, but not the system call.
    if (read_file(vector) || ask_kernel(vector)) {
      note(vector);
    } else {
      // Before Linux 6.4 without /proc. An interposed function must not allocate here.
      for (std::size_t i = 0; i < kCount; ++i) {
        values_[i].store(getauxval(kTypes[i]), std::memory_order_relaxed);
      }
    }
    is_known_.store(true, std::memory_order_release);
  }
  [[nodiscard]] static bool read_file(Vector& vector) noexcept {
    const long file =
        raw_syscall(SYS_openat, AT_FDCWD, as_long("/proc/self/auxv"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const long bytes = raw_syscall(SYS_read, file, as_long(vector.words), sizeof vector.words);
    raw_syscall(SYS_close, file);
    return bytes > 0;
  }
  [[nodiscard]] static bool ask_kernel(Vector& vector) noexcept {
    constexpr long kGetAuxiliary = 0x41555856;  // PR_GET_AUXV
    return raw_syscall(SYS_prctl, kGetAuxiliary, as_long(vector.words), sizeof vector.words) > 0;
  }
  static void note(const Vector& vector) noexcept {
    constexpr std::size_t kWords = sizeof vector.words / sizeof vector.words[0];
    for (std::size_t at = 0; at < kWords && vector.words[at] != AT_NULL; at += 2) {
      for (std::size_t i = 0; i < kCount; ++i) {
        if (kTypes[i] != vector.words[at]) continue;
        values_[i].store(vector.words[at + 1], std::memory_order_relaxed);
      }
    }
  }
  static long as_long(const void* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
  }

  static inline constinit std::atomic<bool> is_known_{false};
  static inline constinit std::atomic<unsigned long> values_[kCount] = {};
};

}  // namespace allod
