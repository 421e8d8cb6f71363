// Records of samples, small enough for a search for leaks to keep one for each block.
#pragma once

#include <bit>

#include "allod.h"
#include "instance/process.hpp"

namespace allod::profile {

struct KnownStack;

inline Process::Heap& engine() noexcept { return Process::heap(); }

// Addresses of a program have at most so many bits; tags of memory above them do not count.
inline constexpr unsigned kAddressBits = 48;
inline constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << kAddressBits) - 1;
[[nodiscard]] inline Address bare_address(const void* block) noexcept {
  return static_cast<Address>(address_of(block) & kAddressMask);
}

class Sample {
 public:
  std::uint64_t block : kAddressBits;  // 0: the record is free
  std::uint64_t rate : 8;              // of sampling, as Rates numbers it
  std::uint64_t is_forgiven : 1;       // never counts as a leak
  std::uint64_t requested : kAddressBits;

 private:
  std::uint64_t slack_low_ : 16;
  std::uint64_t stack_ : kAddressBits;
  std::uint64_t slack_high_ : 16;

 public:
  std::uint64_t birth_ms : 40;
  std::uint64_t thread : 24;
  std::uint32_t next;  // in its list; 0: none

  [[nodiscard]] Address at() const noexcept { return static_cast<Address>(block); }
  [[nodiscard]] std::size_t asked() const noexcept { return static_cast<std::size_t>(requested); }
  [[nodiscard]] KnownStack* stack() const noexcept {
    return reinterpret_cast<KnownStack*>(static_cast<Address>(stack_));
  }
  void set_stack(const KnownStack* stack) noexcept { stack_ = address_of(stack) & kAddressMask; }
  // As rounded by the heap. Rounding adds less than 4 GiB.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(requested + (std::uint64_t{slack_high_} << 16 | slack_low_));
  }
  void set_sizes(std::size_t asked, std::size_t rounded) noexcept {
    const std::size_t slack = rounded > asked ? rounded - asked : 0;
    requested = asked & kAddressMask;
    slack_low_ = static_cast<std::uint16_t>(slack);
    slack_high_ = static_cast<std::uint16_t>(slack >> 16);
  }
  // An address in the slab of the block that allod_profile_block_t tells of; 0: not known.
  [[nodiscard]] Address neighbour() const noexcept { return Address{slice_} << kSliceShift; }
  void set_neighbour(Address other) noexcept {
    slice_ = static_cast<std::uint32_t>(other >> kSliceShift);
  }

 private:
  static constexpr unsigned kSliceShift = 16;
  static_assert(std::size_t{1} << kSliceShift == kSliceBytes);
  std::uint32_t slice_;
};
static_assert(sizeof(Sample) == 40);

// The mean distances of samples that a process has chosen, by number.
class Rates {
 public:
  static constexpr unsigned kMost = 256;
  static constexpr unsigned kNone = kMost;

  // kNone if there have been too many.
  [[nodiscard]] unsigned number_of(std::size_t interval) noexcept {
    for (unsigned i = 0; i < count_; ++i) {
      if (intervals_[i] == interval) return i;
    }
    if (count_ == kMost) return kNone;
    intervals_[count_] = interval;
    return count_++;
  }
  [[nodiscard]] std::size_t interval(unsigned number) const noexcept { return intervals_[number]; }

 private:
  std::size_t intervals_[kMost] = {};
  unsigned count_ = 0;
};

// Samples by number, from 1 on, and by block: a hash table of lists that doubles when full. A
// sample keeps its number, and numbers follow the order of allocation, so that who reads all reads
// memory in its order. Requires a lock of its user's.
class SampleTable {
 public:
  [[nodiscard]] Sample& operator[](std::uint32_t number) noexcept {
    const std::uint64_t place = std::uint64_t{number} - 1 + kFirst;
    const auto chunk = static_cast<unsigned>(std::bit_width(place)) - 1;
    return chunks_[chunk - kFirstShift][place - (std::uint64_t{1} << chunk)];
  }
  [[nodiscard]] std::size_t entries() const noexcept { return entries_; }
  // The highest number. Some records below may be free.
  [[nodiscard]] std::uint32_t last() const noexcept { return last_; }

  // Adds a sample of this block, its other fields unset. Null if memory is exhausted.
  [[nodiscard]] Sample* add(Address block) noexcept;
  // Takes it out, if there is one; but for `block`, its fields stay until the next add(). Null
  // otherwise.
  [[nodiscard]] Sample* remove(Address block) noexcept;

 private:
  static constexpr unsigned kFirstShift = 8;
  static constexpr std::uint64_t kFirst = 1 << kFirstShift;  // samples in the first chunk
  static constexpr unsigned kChunks = 33 - kFirstShift;
  static constexpr std::size_t kMostInList = 3;  // on the average
  static constexpr std::uint32_t kMostSamples = ~std::uint32_t{0} - 1;

  [[nodiscard]] std::size_t list_count() const noexcept {
    return lists_ == nullptr ? 0 : std::size_t{1} << (64 - shift_);
  }
  [[nodiscard]] std::size_t list_of(Address block) const noexcept;
  [[nodiscard]] bool make_room() noexcept;
  [[nodiscard]] std::uint32_t take() noexcept;

  // Each is twice as large as the one before. Its end is not touched before it is needed.
  Sample* chunks_[kChunks] = {};
  std::uint32_t* lists_ = nullptr;
  unsigned shift_ = 64;
  std::size_t entries_ = 0;
  std::uint32_t last_ = 0;
  std::uint32_t spare_ = 0;  // free records, linked
};

}  // namespace allod::profile
