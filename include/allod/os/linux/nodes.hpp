// Memory nodes (NUMA): how many the process may use, and where the calling thread runs.
#pragma once

#include <fcntl.h>

#include "allod/os/linux/sequence_area.hpp"
#include "allod/os/linux/vdso.hpp"

namespace allod::os {

// Thread-safe, async-signal-safe; keeps errno.
class LinuxNodes {
 public:
  // Ids of nodes that may have memory of the process are below that. 1: there is one node, or the
  // process has a memory policy of its own, which then decides where pages lie. Slow.
  [[nodiscard]] static ALLOD_HOT std::uint32_t count() noexcept {
    std::uint64_t allowed[kMostIds / kWordBits] = {};
    // Containers often refuse the call. Whether there is a policy cannot be known then.
    if (ask(nullptr, allowed, kAllowed) != 0) return count_in(kFile);
    std::uint32_t nodes = 0;
    std::uint32_t end = 0;
    for (std::uint32_t word = 0; word < kMostIds / kWordBits; ++word) {
      if (allowed[word] == 0) continue;
      nodes += count_bits(allowed[word]);
      end = word * kWordBits + highest_bit(allowed[word]) + 1;
    }
    if (nodes <= 1) return 1;
    int policy = kDefault;
    const bool is_own = ask(&policy, nullptr, 0) == 0 && policy != kDefault && policy != kLocal;
    return is_own ? 1 : end;
  }

  // The node of the calling thread's processor. A hint.
  [[nodiscard]] static std::uint32_t here() noexcept {
    // A negative number is above all others.
    const std::uint32_t known = known_of(static_cast<std::size_t>(SequenceArea::processor()));
    return known != kUnknown ? known : learn();
  }
  // The node of a processor on which the calling thread has just been; kUnknown if it is on another
  // one now and nobody asked on that one before.
  [[nodiscard]] static std::uint32_t of(std::uint32_t processor) noexcept {
    if (processor >= kMostProcessors) return kUnknown;
    if (known_of(processor) == kUnknown) static_cast<void>(learn());
    return known_of(processor);
  }
  static constexpr std::uint32_t kUnknown = ~0U;

  // The same as count() by a file that lists nodes in order: "0-1", "0,2-3". 1 without it.
  [[nodiscard]] static ALLOD_COLD std::uint32_t count_in(const char* path) noexcept {
    const long file = raw_syscall(SYS_openat, AT_FDCWD, as_long(path), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 1;
    char text[256];
    const long length = raw_syscall(SYS_read, file, as_long(text), sizeof text);
    raw_syscall(SYS_close, file);
    std::uint32_t last = 0;
    for (long i = 0; i < length && last < kMostIds; ++i) {
      const bool is_digit = text[i] >= '0' && text[i] <= '9';
      if (is_digit) last = last * 10 + static_cast<std::uint32_t>(text[i] - '0');
      if (text[i] == ',' || text[i] == '-') last = 0;
    }
    return last < kMostIds ? last + 1 : 1;
  }

 private:
  static constexpr const char* kFile = "/sys/devices/system/node/has_memory";
  static constexpr std::uint32_t kMostIds = 1024;  // those of the kernel
  static constexpr std::size_t kMostProcessors = 1024;
  static constexpr long kAllowed = 4;  // MPOL_F_MEMS_ALLOWED, MPOL_DEFAULT and MPOL_LOCAL of
  static constexpr int kDefault = 0;   // <linux/mempolicy.h>
  static constexpr int kLocal = 4;

  // The kernel uses one bit less.
  static long ask(int* policy, std::uint64_t* nodes, long flags) noexcept {
    return raw_syscall(SYS_get_mempolicy, as_long(policy), as_long(nodes),
                       nodes != nullptr ? kMostIds + 1 : 0, 0, flags);
  }
  [[nodiscard]] static std::uint32_t known_of(std::size_t processor) noexcept {
    if (processor >= kMostProcessors) return kUnknown;
    // One more than the node; 0: unknown.
    const std::uint32_t known = of_[processor].load(std::memory_order_relaxed);
    return known != 0 ? known - 1 : kUnknown;
  }
  static ALLOD_NOINLINE std::uint32_t learn() noexcept {
    const Vdso::Place place = Vdso::place();
    if (place.processor < kMostProcessors) {
      of_[place.processor].store(static_cast<std::uint16_t>(place.node + 1),
                                 std::memory_order_relaxed);
    }
    return place.node;
  }
  static long as_long(const void* pointer) noexcept {
    return static_cast<long>(address_of(pointer));
  }

  static inline constinit std::atomic<std::uint16_t> of_[kMostProcessors] = {};
};

}  // namespace allod::os
