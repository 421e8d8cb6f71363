// The recorder's buffers. Each thread fills its own without a lock, and writes it to the file when
// it is full. A lock orders these writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/os/linux/ticks.hpp"
#include "record/format.hpp"

namespace allod::record {

using os::kBriefTicks;
using os::read_ticks;

class Thread {
 public:
  static constexpr std::size_t kBytes = 64 * 1024;

  // While true, calls of this thread are not recorded: the allocator or the recorder makes them.
  volatile bool busy = true;

  // The time of an event: for an allocation, read after the call; for a release, before it.
  //
  // Reading the clock is the most expensive part of an event. So events of a thread share a reading
  // while no other thread records any. The order between threads is kept: another thread's first
  // event revokes the right to share before it reads the clock, and our thread checks that right at
  // each event. Sharing makes times older, never newer.
  [[nodiscard]] ALLOD_INLINE std::uint64_t time() noexcept {
    if (shares_ > 0 && sole_.load(std::memory_order_relaxed) == this) {
      --shares_;
      return ticks_;
    }
    std::uint64_t ticks = read_ticks();
    const Thread* const sole = sole_.load(std::memory_order_relaxed);
    if (sole == this) {
      // With rare events, sharing would save nothing and hide the pauses between them.
      shares_ = ticks - ticks_ < kBriefTicks ? kSharing : 0;
    } else if (sole != nullptr) [[unlikely]] {
      end_sharing();
      ticks = read_ticks();
    }
    return ticks;
  }

  ALLOD_INLINE void add(Kind kind, std::uint64_t ticks, const void* address) noexcept {
    const Place place = begin(kind, ticks, address);
    finish(place, place.at);
  }
  ALLOD_INLINE void add(Kind kind, std::uint64_t ticks, const void* address,
                        std::size_t size) noexcept {
    const Place place = begin(kind, ticks, address);
    std::uint8_t* at = place.at;
    put_size(at, size);
    finish(place, at);
  }
  void add_aligned(std::uint64_t ticks, const void* address, std::size_t size,
                   std::uint8_t alignment) noexcept {
    const Place place = begin(Kind::aligned, ticks, address);
    std::uint8_t* at = place.at;
    put_size(at, size);
    *at++ = alignment;
    finish(place, at);
  }
  void add_realloc(std::uint64_t before, std::uint64_t after, const void* from, const void* to,
                   std::size_t size) noexcept {
    const Place place = begin(Kind::realloc, before, from);
    std::uint8_t* at = place.at;
    put_size(at, size);
    put_number(at, after > before ? after - before : 0);
    const std::uint64_t unit = unit_of(to);
    put_number(at, zigzag(unit - unit_));
    if (to != nullptr) unit_ = unit;
    ticks_ = after > ticks_ ? after : ticks_;
    finish(place, at);
  }

 private:
  friend class Writer;

  // Events that share a reading, without the first.
  static constexpr unsigned kSharing = 31;

  // The value of `filled_` at the event's start, and where to write next.
  struct Place {
    std::uint64_t filled;
    const std::uint8_t* start;
    std::uint8_t* at;
  };

  // The calling thread shares readings until another thread records an event. A thread that found
  // no sharing thread must finish its reading before our next event. System calls in between
  // guarantee this.
  void begin_sharing() noexcept {
    shares_ = 0;
    sole_.store(this);
  }
  [[gnu::cold, gnu::noinline]] static void end_sharing() noexcept { sole_.exchange(nullptr); }

  // The buffer follows the object, up to kBytes in all.
  [[nodiscard]] std::uint8_t* data() noexcept { return reinterpret_cast<std::uint8_t*>(this + 1); }

  // Drops the upper bits, which no address of user space has, so that invalid pointers fit the
  // encoding.
  static std::uint64_t unit_of(const void* address) noexcept {
    return (reinterpret_cast<std::uintptr_t>(address) << 7U) >> (7U + kAddressShift);
  }

  [[nodiscard]] ALLOD_INLINE Place begin(Kind kind, std::uint64_t ticks,
                                         const void* address) noexcept {
    const std::uint64_t filled = filled_.load(std::memory_order_relaxed);
    std::uint8_t* const start = data() + static_cast<std::uint32_t>(filled);
    const std::uint64_t unit = unit_of(address);
    const std::uint64_t moved = zigzag(unit - unit_);
    if (address != nullptr) unit_ = unit;
    // The number of significant bits, less than 63.
    const auto bits = 63U - static_cast<unsigned>(__builtin_clzll(moved << 1U | 1U));
    const unsigned address_bytes = (bits + 7) / 8;
    const std::uint64_t first = static_cast<unsigned>(kind) | std::uint64_t{address_bytes}
                                                                  << kAddressBytesShift;
    // Counters of different cores may disagree slightly; time never runs backwards.
    if (ticks <= ticks_) {
      store64(start, first | moved << 8U);
      return {filled, start, start + 1 + address_bytes};
    }
    std::uint64_t passed = ticks - ticks_;
    passed = passed < kMostTime ? passed : kMostTime;
    ticks_ += passed;
    const unsigned code = time_code(passed);
    store64(start, first | code << kTimeShift | passed << 8U);
    std::uint8_t* const at = start + 1 + time_bytes(code);
    store64(at, moved);
    return {filled, start, at + address_bytes};
  }

  ALLOD_INLINE void finish(const Place& place, const std::uint8_t* at) noexcept {
    const std::uint64_t filled =
        place.filled + (std::uint64_t{1} << 32U) + static_cast<std::uint64_t>(at - place.start);
    // Release: another thread may write this buffer out when the process ends.
    filled_.store(filled, std::memory_order_release);
    if (static_cast<std::uint32_t>(filled) >= limit_) [[unlikely]]
      write_out();
  }

  static ALLOD_INLINE void put_size(std::uint8_t*& at, std::size_t size) noexcept {
    if (size < kMostBrief) [[likely]] {
      put_brief(at, size);
    } else {
      put_number(at, size < kMostNumber ? size : kMostNumber);
    }
  }

  [[gnu::cold, gnu::noinline]] void write_out() noexcept;

  // The thread that shares readings, or null. Written when a thread begins or writes its buffer
  // out, and by the first event of another thread after that.
  alignas(64) static std::atomic<const Thread*> sole_;

  // Upper half: events. Lower half: bytes.
  std::atomic<std::uint64_t> filled_ = 0;
  std::uint32_t limit_ = 0;
  unsigned shares_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint64_t unit_ = 0;
  std::uint64_t base_ticks_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t kernel_id_ = 0;
  unsigned ending_ = 0;
  Thread* next_ = nullptr;
};

class Recorder {
 public:
  // Returns the calling thread's buffer and marks it busy. Null if the call is not to be recorded.
  [[nodiscard]] static ALLOD_INLINE Thread* enter() noexcept {
    Thread* thread = current_;
    if (thread->busy) [[unlikely]] {
      thread = bind();
      if (thread == nullptr) return nullptr;
    }
    thread->busy = true;
    return thread;
  }
  static ALLOD_INLINE void leave(Thread* thread) noexcept { thread->busy = false; }

  static void begin() noexcept;
  static void end() noexcept;
  static void before_exec() noexcept;

 private:
  friend class Writer;

  [[gnu::cold, gnu::noinline]] static Thread* bind() noexcept;

  // For threads without a buffer: always busy, never written.
  static Thread none_;
  static thread_local constinit Thread* current_;
};

// Path of the recorded allocator.
[[nodiscard]] const char* allocator_path() noexcept;

}  // namespace allod::record
