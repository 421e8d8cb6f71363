// Page sources, which provide the memory of a tailored heap, and which can be chained.
#pragma once

#include <concepts>

#include "allod/os/linux/linux.hpp"

namespace allod {

// Provides chunks.
//   kChunkBytes        a power of two; every chunk has this size, or a multiple of it
//   kOnePlace          whether there is only one chunk, of any size and alignment; take() then sets
//                      *bytes
//   take(bytes)        readable and writable memory aligned to kChunkBytes, or null; all zeros,
//                      except with kOnePlace
//   give(chunk, bytes) takes the chunk back
//   purge(at, bytes)   purges memory and keeps the addresses; false if it cannot
//   now_ms()           monotonic
//   page_bytes()       purge takes multiples of it
// Used by one thread at a time.
template <class S>
concept PageSource = requires(S source, void* memory, std::size_t bytes, std::size_t* out) {
  { S::kChunkBytes } -> std::convertible_to<std::size_t>;
  { S::kOnePlace } -> std::convertible_to<bool>;
  { source.take(bytes, out) } -> std::same_as<void*>;
  { source.give(memory, bytes) };
  { source.purge(memory, bytes) } -> std::same_as<bool>;
  { source.now_ms() } -> std::same_as<std::uint64_t>;
  { source.page_bytes() } -> std::same_as<std::size_t>;
};

inline constexpr std::size_t operator""_KiB(unsigned long long count) { return count << 10; }
inline constexpr std::size_t operator""_MiB(unsigned long long count) { return count << 20; }
inline constexpr std::size_t operator""_GiB(unsigned long long count) { return count << 30; }

// Ordinary pages, mapped by chunks.
template <std::size_t kBytes = std::size_t{1} << 20, os::Platform P = os::Linux>
class SystemPages {
  static_assert(is_power_of_two(kBytes) && kBytes >= kSliceBytes,
                "a chunk is a power of two of at least 64 KiB");

 public:
  static constexpr std::size_t kChunkBytes = kBytes;
  static constexpr bool kOnePlace = false;

  [[nodiscard]] void* take(std::size_t bytes, std::size_t*) noexcept {
    start();
    void* const chunk = platform_.reserve(bytes, kChunkBytes);
    if (chunk == nullptr) return nullptr;
    if (!platform_.commit(chunk, bytes)) {
      platform_.unmap(chunk, bytes);
      return nullptr;
    }
    platform_.name(chunk, bytes, "allod: tailored heap");
    return chunk;
  }
  void give(void* chunk, std::size_t bytes) noexcept { platform_.unmap(chunk, bytes); }
  [[nodiscard]] bool purge(void* at, std::size_t bytes) noexcept {
    return platform_.purge(at, bytes);
  }
  [[nodiscard]] std::uint64_t now_ms() noexcept { return platform_.now_ms(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return platform_.page_size(); }
  [[nodiscard]] P& platform() noexcept { return platform_; }

 private:
  void start() noexcept {
    if (!started_) platform_.start();
    started_ = true;
  }

  P platform_;
  bool started_ = false;
};

// Huge pages of 2 MiB or 1 GiB from the system's pool. If that is empty, ordinary memory with
// transparent huge pages; `missed` counts such chunks.
template <std::size_t kPage = std::size_t{2} << 20>
class HugePages : public SystemPages<kPage> {
  static_assert(kPage == std::size_t{2} << 20 || kPage == std::size_t{1} << 30,
                "huge pages have 2 MiB or 1 GiB");
  using Base = SystemPages<kPage>;

 public:
  [[nodiscard]] void* take(std::size_t bytes, std::size_t* taken) noexcept {
    int error = 0;
    void* chunk = Base::platform().map_huge(bytes, highest_bit(kPage), &error);
    if (chunk != nullptr) return chunk;
    chunk = Base::take(bytes, taken);
    if (chunk != nullptr) {
      Base::platform().prefer_huge(chunk, bytes);
      ++missed_;
    }
    return chunk;
  }
  // Huge pages return to the pool with their chunk only.
  [[nodiscard]] bool purge(void*, std::size_t) noexcept { return false; }
  [[nodiscard]] std::size_t missed() const noexcept { return missed_; }

 private:
  std::size_t missed_ = 0;
};

// Asks for transparent huge pages in the chunks of another source.
template <PageSource Under>
class TransparentHuge : public Under {
 public:
  using Under::Under;
  [[nodiscard]] void* take(std::size_t bytes, std::size_t* taken) noexcept {
    void* const chunk = Under::take(bytes, taken);
    if (chunk != nullptr) Under::platform().prefer_huge(chunk, bytes);
    return chunk;
  }
};

// Locks the chunks of another source in memory: after the first use, no page fault or swapping
// occurs. Chunks that the system does not lock (`ulimit -l`) are not used.
template <PageSource Under>
class Locked : public Under {
 public:
  using Under::Under;
  [[nodiscard]] void* take(std::size_t bytes, std::size_t* taken) noexcept {
    void* const chunk = Under::take(bytes, taken);
    if (chunk == nullptr || Under::platform().lock(chunk, bytes) == 0) return chunk;
    Under::give(chunk, bytes);
    return nullptr;
  }
  [[nodiscard]] bool purge(void*, std::size_t) noexcept { return false; }
};

// One region of kBytes of addresses, reserved at first use, which bounds the heap. Two comparisons
// tell its blocks from others.
template <std::size_t kBytes, std::size_t kChunk = std::size_t{1} << 20, os::Platform P = os::Linux>
class Reserved {
  static_assert(kBytes % kChunk == 0 && is_power_of_two(kChunk) && kChunk >= kSliceBytes,
                "a region is a multiple of its chunks, and those are powers of two from 64 KiB on");

 public:
  static constexpr std::size_t kChunkBytes = kChunk;
  static constexpr bool kOnePlace = false;

  constexpr Reserved() noexcept = default;
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    if (base_ != nullptr) platform_.unmap(base_, kBytes);
  }

  [[nodiscard]] void* take(std::size_t bytes, std::size_t*) noexcept {
    if (!start()) return nullptr;
    const std::size_t wanted = bytes / kChunk;
    for (std::size_t at = 0; at + wanted <= kChunks; ++at) {
      std::size_t run = 0;
      while (run < wanted && !is_used(at + run)) ++run;
      if (run == wanted) return take_at(at, wanted);
      at += run;
    }
    return nullptr;
  }
  void give(void* chunk, std::size_t bytes) noexcept {
    const std::size_t first = (address_of(chunk) - address_of(base_)) / kChunk;
    // Memory that cannot be purged would not be zero at its next use.
    if (!platform_.purge(chunk, bytes)) return;
    for (std::size_t i = first; i < first + bytes / kChunk; ++i) {
      used_[i / kWordBits] &= ~bit(i % kWordBits);
    }
  }
  [[nodiscard]] bool purge(void* at, std::size_t bytes) noexcept {
    return platform_.purge(at, bytes);
  }
  [[nodiscard]] std::uint64_t now_ms() noexcept { return platform_.now_ms(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return platform_.page_size(); }
  [[nodiscard]] P& platform() noexcept { return platform_; }
  [[nodiscard]] bool contains(const void* address) const noexcept {
    return address_of(address) - address_of(base_) < kBytes;
  }

 private:
  static constexpr std::size_t kChunks = kBytes / kChunk;

  [[nodiscard]] bool start() noexcept {
    if (base_ != nullptr) return true;
    platform_.start();
    base_ = platform_.reserve(kBytes, kChunk);
    return base_ != nullptr;
  }
  [[nodiscard]] bool is_used(std::size_t i) const noexcept {
    return (used_[i / kWordBits] & bit(i % kWordBits)) != 0;
  }
  [[nodiscard]] void* take_at(std::size_t first, std::size_t count) noexcept {
    void* const chunk = static_cast<unsigned char*>(base_) + first * kChunk;
    if (!platform_.commit(chunk, count * kChunk)) return nullptr;
    for (std::size_t i = first; i < first + count; ++i) used_[i / kWordBits] |= bit(i % kWordBits);
    return chunk;
  }

  P platform_;
  void* base_ = nullptr;
  Word used_[words_for(kChunks)] = {};
};

// Memory of the program, of any alignment. It must outlive the heap, which never calls the system.
class UserBuffer {
 public:
  static constexpr std::size_t kChunkBytes = 0;
  static constexpr bool kOnePlace = true;

  constexpr UserBuffer(void* memory, std::size_t bytes) noexcept : memory_{memory}, bytes_{bytes} {}

  [[nodiscard]] void* take(std::size_t, std::size_t* bytes) noexcept {
    *bytes = bytes_;
    return memory_;
  }
  void give(void*, std::size_t) noexcept {}
  [[nodiscard]] bool purge(void*, std::size_t) noexcept { return false; }
  [[nodiscard]] std::uint64_t now_ms() const noexcept { return 0; }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return 4096; }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace allod
