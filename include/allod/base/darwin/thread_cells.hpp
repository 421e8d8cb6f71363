// Variables of each thread on macOS, reached without a call.
//
// A thread_local variable there is reached by a function of dyld, which calls malloc at a thread's
// first access. So the first values of our variables are a section of the library, and each thread
// that writes to one gets a copy of it, a block. A key of the thread library holds the distance
// from the section to the block. It is 0 for a thread without one, which so reads the first values.
// The values of keys lie in an array at the thread pointer, as mimalloc, WebKit and others read
// them.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/base/check.hpp"
#include "allod/base/cpu.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
// The linker lays them around the section.
[[gnu::visibility("hidden")]] extern const char allod_cells_begin __asm__(
    "section$start$__DATA$__allod_cells");
[[gnu::visibility("hidden")]] extern const char allod_cells_end __asm__(
    "section$end$__DATA$__allod_cells");
// NOLINTEND(readability-identifier-naming)
}

namespace allod {

class ThreadCells {
 public:
  // What to add to the address of a first value for that of the calling thread's variable.
  // Volatile: it changes when the thread gets its block.
  [[nodiscard]] static ALLOD_INLINE std::ptrdiff_t distance() noexcept {
    return slot(key_.load(std::memory_order_relaxed));
  }
  // The same, never 0.
  [[nodiscard]] static ALLOD_INLINE std::ptrdiff_t distance_to_write() noexcept {
    const std::ptrdiff_t there = distance();
    return __builtin_expect(there != 0, 1) ? there : take_block();
  }

 private:
  // Never moves or ends. A thread finds its own by itself and its number, since keys are emptied
  // while a thread ends. A later thread with the same descriptor takes it over.
  struct Block {
    Block* next;
    pthread_t thread;
    std::uint64_t number;
  };
  struct Chunk {
    std::atomic<std::size_t> used;
  };
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
  static constexpr std::size_t kLists = 64;
  // Until there is a key, the process has written nothing, and reads a slot that is always 0: one
  // of those that were for the garbage collection of Objective-C, which macOS has no more.
  static constexpr std::uint64_t kAlwaysZero = 80;

  [[nodiscard]] static ALLOD_INLINE std::ptrdiff_t slot(std::uint64_t key) noexcept {
    std::ptrdiff_t value;
#if defined(__x86_64__)
    __asm__ volatile("movq %%gs:(,%1,8), %0" : "=r"(value) : "r"(key));
#else
    // The lowest bits may be the number of a processor.
    __asm__ volatile(
        "mrs %0, tpidrro_el0\n\t"
        "and %0, %0, #0xfffffffffffffff8\n\t"
        "ldr %0, [%0, %1, lsl #3]"
        : "=&r"(value)
        : "r"(key));
#endif
    return value;
  }
  [[nodiscard]] static std::size_t cell_bytes() noexcept {
    return static_cast<std::size_t>(opaque(&allod_cells_end) - opaque(&allod_cells_begin));
  }
  [[nodiscard]] static std::size_t stride() noexcept {
    return sizeof(Block) + kCacheLine + (cell_bytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  [[nodiscard]] static char* cells_of(Block& block) noexcept {
    // As far from a cache line as the first values, for the same alignment.
    const auto first = reinterpret_cast<std::uintptr_t>(opaque(&allod_cells_begin));
    const auto behind = reinterpret_cast<std::uintptr_t>(&block + 1);
    return reinterpret_cast<char*>(behind + (first - behind) % kCacheLine);
  }

  // A signal handler in between would take another block.
  [[nodiscard]] static ALLOD_COLD std::ptrdiff_t take_block() noexcept {
    const int error = errno;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::ptrdiff_t there = distance();
    if (there == 0) {
      there = cells_of(own_block()) - opaque(&allod_cells_begin);
      const std::uint64_t key = own_key();
      const int failed = pthread_setspecific(key, reinterpret_cast<void*>(there));
      always_check(failed == 0 && distance() == there,
                   "this system keeps the values of a thread elsewhere");
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return there;
  }
  [[nodiscard]] static std::uint64_t own_key() noexcept {
    std::uint64_t key = key_.load(std::memory_order_acquire);
    if (key != kAlwaysZero) return key;
    pthread_key_t made = 0;
    always_check(pthread_key_create(&made, nullptr) == 0, "no key for the variables of threads");
    if (key_.compare_exchange_strong(key, made, std::memory_order_acq_rel)) return made;
    pthread_key_delete(made);
    return key;
  }
  [[nodiscard]] static Block& own_block() noexcept {
    const pthread_t self = pthread_self();
    std::uint64_t number = 0;
    pthread_threadid_np(nullptr, &number);
    std::atomic<Block*>& list = lists_[reinterpret_cast<std::uintptr_t>(self) / 4096 % kLists];
    for (Block* block = list.load(std::memory_order_acquire); block != nullptr;
         block = block->next) {
      if (block->thread != self) continue;
      if (block->number != number) fill(*block, number);
      return *block;
    }
    Block& made = *new_block();
    made.thread = self;
    fill(made, number);
    made.next = list.load(std::memory_order_relaxed);
    while (!list.compare_exchange_weak(made.next, &made, std::memory_order_acq_rel)) {
    }
    return made;
  }
  static void fill(Block& block, std::uint64_t number) noexcept {
    block.number = number;
    __builtin_memcpy(cells_of(block), opaque(&allod_cells_begin), cell_bytes());
  }
  [[nodiscard]] static Block* new_block() noexcept {
    for (;;) {
      Chunk* chunk = chunk_.load(std::memory_order_acquire);
      if (chunk != nullptr) {
        const std::size_t at = chunk->used.fetch_add(stride());
        if (at + stride() <= kChunkBytes) {
          return reinterpret_cast<Block*>(reinterpret_cast<char*>(chunk) + at);
        }
      }
      void* const memory =
          mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
      always_check(memory != MAP_FAILED, "no memory for the variables of a thread");
      auto* const made = static_cast<Chunk*>(memory);
      made->used.store(kCacheLine);
      if (!chunk_.compare_exchange_strong(chunk, made)) munmap(memory, kChunkBytes);
    }
  }

  static inline constinit std::atomic<std::uint64_t> key_{kAlwaysZero};
  static inline constinit std::atomic<Chunk*> chunk_{nullptr};
  static inline constinit std::atomic<Block*> lists_[kLists] = {};
};

// A variable of each thread. `Owner` tells it from others of its type.
template <class Owner, class T, T kValue>
class ThreadVariable {
 public:
  constexpr ThreadVariable() noexcept = default;
  ThreadVariable(const ThreadVariable&) = delete;

  ALLOD_INLINE operator T() const noexcept { return *at(ThreadCells::distance()); }
  ALLOD_INLINE T operator->() const noexcept { return *at(ThreadCells::distance()); }
  ALLOD_INLINE T* operator&() const noexcept { return at(ThreadCells::distance_to_write()); }
  ALLOD_INLINE T operator=(T value) const noexcept { return *&*this = value; }
  ALLOD_INLINE T operator+=(T value) const noexcept { return *&*this += value; }
  ALLOD_INLINE T operator-=(T value) const noexcept { return *&*this -= value; }
  ALLOD_INLINE T operator|=(T value) const noexcept { return *&*this |= value; }
  ALLOD_INLINE T operator&=(T value) const noexcept { return *&*this &= value; }
  ALLOD_INLINE T operator++() const noexcept { return ++*&*this; }

 private:
  [[nodiscard]] static ALLOD_INLINE T* at(std::ptrdiff_t distance) noexcept {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(opaque(&first_)) + distance);
  }
  [[gnu::section("__DATA,__allod_cells"), gnu::used]] static inline constinit T first_ = kValue;
};

// The same for any type, whose first value is all zeros.
template <class Owner, class T>
class ThreadZeros {
 public:
  constexpr ThreadZeros() noexcept = default;
  ThreadZeros(const ThreadZeros&) = delete;

  ALLOD_INLINE operator T&() const noexcept {
    char* const first = reinterpret_cast<char*>(opaque(&first_));
    return *reinterpret_cast<T*>(first + ThreadCells::distance_to_write());
  }

 private:
  [[gnu::section("__DATA,__allod_cells"), gnu::used]] static inline constinit T first_{};
};

}  // namespace allod
