// Reserved memory that reads as zero: Windows faults at reads of pages that are not committed.
#pragma once

#include "allod/base/base.hpp"
#include "allod/os/windows/calls.hpp"

namespace allod::os {

// A handler of exceptions commits a piece when it is read first. Whoever writes commits before.
class DemandZeros {
 public:
  // `bytes` of reserved memory, aligned like all reservations. False if the system refuses, or
  // there are too many already. Thread-safe.
  [[nodiscard]] static bool add(void* address, std::size_t bytes) noexcept {
    if (!handles_.exchange(true) && allod_win_on_exception(1, &handle) == nullptr) {
      handles_.store(false);
      return false;
    }
    for (Range& range : ranges_) {
      Address none = 0;
      if (!range.from.compare_exchange_strong(none, address_of(address))) continue;
      range.bytes.store(bytes);
      return true;
    }
    return false;
  }
  // Before the addresses are released.
  static void remove(void* address) noexcept {
    for (Range& range : ranges_) {
      if (range.from.load() != address_of(address)) continue;
      range.bytes.store(0);
      range.from.store(0);
    }
  }

 private:
  struct Record {
    std::uint32_t code;
    std::uint32_t flags;
    Record* nested;
    void* instruction;
    std::uint32_t count;
    std::uint64_t words[15];  // of an access: 0 for a read, and the address
  };
  struct Exception {
    Record* record;
    void* context;
  };
  struct Range {
    std::atomic<Address> from;
    std::atomic<std::size_t> bytes;
  };

  static long handle(void* exception) noexcept {
    constexpr std::uint32_t kAccessViolation = 0xc0000005;
    constexpr std::uint64_t kRead = 0;
    constexpr long kAgain = -1;
    constexpr long kNotOurs = 0;
    const Record& record = *static_cast<const Exception*>(exception)->record;
    if (record.code != kAccessViolation || record.words[0] != kRead) return kNotOurs;
    const Address at = record.words[1];
    for (const Range& range : ranges_) {
      const Address from = range.from.load();
      const std::size_t bytes = range.bytes.load();
      if (at - from >= bytes) continue;
      const std::size_t offset = align_down(at - from, kPiece);
      const std::size_t piece = bytes - offset < kPiece ? bytes - offset : kPiece;
      const LastError kept;
      void* const memory = reinterpret_cast<void*>(from + offset);
      return allod_win_alloc(memory, piece, kWinCommit, kWinReadWrite) != nullptr ? kAgain
                                                                                  : kNotOurs;
    }
    return kNotOurs;
  }

  static constexpr std::size_t kPiece = std::size_t{64} << 10;
  static inline constinit std::atomic<bool> handles_{false};
  static inline constinit Range ranges_[16] = {};
};

}  // namespace allod::os
