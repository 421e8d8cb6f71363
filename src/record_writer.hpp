// The recorder's buffers and its file. Every thread fills a buffer of its own without any lock, and
// writes it out when it is full; a lock orders the writing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "record_clock.hpp"
#include "record_format.hpp"

namespace allod::record {

class Thread {
 public:
  static constexpr std::size_t kBytes = 64 * 1024;

  // While true, what this thread calls is not recorded: it is called by an allocator, or by us.
  volatile bool busy = true;

  void add(Kind kind, std::uint64_t ticks, const void* address) noexcept {
    finish(begin(kind, ticks, address));
  }
  void add(Kind kind, std::uint64_t ticks, const void* address, std::size_t size) noexcept {
    std::uint8_t* at = begin(kind, ticks, address);
    put_number(at, size < kMostNumber ? size : kMostNumber);
    finish(at);
  }
  void add_aligned(std::uint64_t ticks, const void* address, std::size_t size,
                   std::uint8_t alignment) noexcept {
    std::uint8_t* at = begin(Kind::aligned, ticks, address);
    put_number(at, size < kMostNumber ? size : kMostNumber);
    *at++ = alignment;
    finish(at);
  }
  void add_realloc(std::uint64_t before, std::uint64_t after, const void* from, const void* to,
                   std::size_t size) noexcept {
    std::uint8_t* at = begin(Kind::realloc, before, from);
    put_number(at, size < kMostNumber ? size : kMostNumber);
    put_number(at, after > before ? after - before : 0);
    const std::uint64_t unit = unit_of(to);
    put_number(at, zigzag(unit - unit_));
    if (to != nullptr) unit_ = unit;
    ticks_ = after > ticks_ ? after : ticks_;
    finish(at);
  }

 private:
  friend class Writer;

  // Addresses beyond those of user space cannot be blocks, and must not spoil the encoding.
  // The buffer is behind the object, up to kBytes from its beginning.
  [[nodiscard]] std::uint8_t* data() noexcept { return reinterpret_cast<std::uint8_t*>(this + 1); }

  static std::uint64_t unit_of(const void* address) noexcept {
    return (reinterpret_cast<std::uintptr_t>(address) << 7U) >> (7U + kAddressShift);
  }

  [[nodiscard]] std::uint8_t* begin(Kind kind, std::uint64_t ticks, const void* address) noexcept {
    std::uint8_t* at = data() + static_cast<std::uint32_t>(filled_.load(std::memory_order_relaxed));
    // The cores' counters agree, but nobody promises how well.
    const std::uint64_t passed = ticks > ticks_ ? ticks - ticks_ : 0;
    ticks_ += passed;
    const unsigned time_code =
        unsigned{passed > 0xFFU} + unsigned{passed > 0xFFFFU} + unsigned{passed > 0xFFFF'FFFFU};
    const std::uint64_t unit = unit_of(address);
    const std::uint64_t moved = zigzag(unit - unit_);
    if (address != nullptr) unit_ = unit;
    const unsigned address_bytes =
        moved == 0 ? 0 : (71U - static_cast<unsigned>(__builtin_clzll(moved))) / 8;
    *at++ = static_cast<std::uint8_t>(static_cast<unsigned>(kind) | time_code << 3U |
                                      address_bytes << 5U);
    store64(at, passed);
    at += 1U << time_code;
    store64(at, moved);
    return at + address_bytes;
  }

  void finish(const std::uint8_t* at) noexcept {
    const auto bytes = static_cast<std::uint64_t>(at - data());
    const std::uint64_t events = (filled_.load(std::memory_order_relaxed) >> 32U) + 1;
    // Another thread may write the buffer out when the process ends.
    filled_.store(events << 32U | bytes, std::memory_order_release);
    if (bytes >= limit_) [[unlikely]]
      write_out();
  }

  [[gnu::cold, gnu::noinline]] void write_out() noexcept;

  // Events and bytes, in the upper and lower half.
  std::atomic<std::uint64_t> filled_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint64_t unit_ = 0;
  std::uint64_t base_ticks_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t kernel_id_ = 0;
  unsigned ending_ = 0;
  Thread* next_ = nullptr;
};

// The process's recorder.
class Recorder {
 public:
  // The buffer of the calling thread, from now on in use; null if the call is not to be recorded.
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

  // The process begins, ends, or becomes another program.
  static void begin() noexcept;
  static void end() noexcept;
  static void before_exec() noexcept;

 private:
  friend class Writer;

  [[gnu::cold, gnu::noinline]] static Thread* bind() noexcept;

  // Of a thread that has no buffer: always busy, never written to.
  static Thread none_;
  static thread_local constinit Thread* current_;
};

// The library that serves malloc.
[[nodiscard]] const char* allocator_path() noexcept;

}  // namespace allod::record
