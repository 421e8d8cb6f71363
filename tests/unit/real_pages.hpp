// Pages of the system that a test runs on, for the fake that is tested on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allod/base/base.hpp"

#if defined(_WIN32)
#include "allod/os/windows/windows.hpp"

extern "C" int allod_test_protect(void* address, std::size_t bytes, std::uint32_t protection,
                                  std::uint32_t* before) __asm__("VirtualProtect");
#else
#include <sys/mman.h>
#endif

namespace allod::test {

enum class Access : std::uint8_t { none, read, write };

#if defined(_WIN32)

struct RealPages {
  // Addresses without access, or null.
  static void* reserve(std::size_t bytes) noexcept {
    return os::Windows::reserve(bytes, kSliceBytes);
  }
  static void release(void* address, std::size_t bytes) noexcept {
    os::Windows::unmap(address, bytes);
  }
  // Whoever gets access to them next finds zeros.
  static bool forget(void* address, std::size_t bytes) noexcept {
    return allod_win_free(address, bytes, os::kWinDecommit) != 0;
  }
  static bool allow(void* address, std::size_t bytes, Access access) noexcept {
    const std::uint32_t protection = protection_of(access);
    std::uint32_t before;
    return allod_win_alloc(address, bytes, os::kWinCommit, protection) != nullptr &&
           allod_test_protect(address, bytes, protection, &before) != 0;
  }
  // They read as zero, and access to them stays.
  static bool clear(void* address, std::size_t bytes, Access access) noexcept {
    return forget(address, bytes) && allow(address, bytes, access);
  }
  static bool look(const void* address, std::size_t bytes, unsigned char* pages) noexcept {
    return os::Windows{}.look(const_cast<void*>(address), bytes, pages);
  }

 private:
  static std::uint32_t protection_of(Access access) noexcept {
    constexpr std::uint32_t kReadOnly = 2;
    return access == Access::write  ? os::kWinReadWrite
           : access == Access::read ? kReadOnly
                                    : os::kWinNoAccess;
  }
};

#else

struct RealPages {
  // Addresses without access, or null.
  static void* reserve(std::size_t bytes) noexcept {
    void* const raw = mmap(nullptr, bytes, PROT_NONE, kKind, -1, 0);
    return raw == MAP_FAILED ? nullptr : raw;
  }
  static void release(void* address, std::size_t bytes) noexcept { munmap(address, bytes); }
  // Whoever gets access to them next finds zeros.
  static bool forget(void* address, std::size_t bytes) noexcept {
    return mmap(address, bytes, PROT_NONE, kKind | MAP_FIXED, -1, 0) == address;
  }
  static bool allow(void* address, std::size_t bytes, Access access) noexcept {
    const int protection = access == Access::write  ? PROT_READ | PROT_WRITE
                           : access == Access::read ? PROT_READ
                                                    : PROT_NONE;
    return mprotect(address, bytes, protection) == 0;
  }
  // They read as zero, and access to them stays.
  static bool clear(void* address, std::size_t bytes, Access) noexcept {
    return madvise(address, bytes, MADV_DONTNEED) == 0;
  }
  static bool look(const void* address, std::size_t bytes, unsigned char* pages) noexcept {
    return mincore(const_cast<void*>(address), bytes, pages) == 0;
  }

 private:
  static constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
};

#endif

}  // namespace allod::test
