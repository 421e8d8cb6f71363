// Layer 6: the heap of a process, each thread bound to a domain of its own.
#pragma once

#include <pthread.h>

#include "allod/heap/heap.hpp"

namespace allod::thread {

// One per policy. Everything is static and constant-initialised: the first call
// may come before any constructor. Thread-safe throughout.
//
// Policy adds to what the heap asks for:
//   static HeapOptions options()   read once, at the first slow path
template <class Policy>
class ProcessHeap {
 public:
  using Heap = heap::Heap<Policy>;
  using Domain = typename Heap::Domain;
  using Sizes = typename Policy::Sizes;

  // A block of at least `size` bytes. When there is none, the result is that of
  // Failure::out_of_memory(size), called last.
  template <class Failure>
  [[nodiscard]] static ALLOD_INLINE void* allocate(std::size_t size) noexcept(Failure::kNoexcept) {
    if (__builtin_expect(size > Sizes::kTableMaxSize, 0)) return allocate_large<Failure>(size);
    void* const block = current_->pop_small(size);
    if (__builtin_expect(block != nullptr, 1)) return block;
    return allocate_slow<Failure>(size);
  }

  static ALLOD_INLINE void release(void* block) noexcept {
    Domain& domain = *current_;
    space::Tag tag;
    if (__builtin_expect(heap_.space().map().fast_tag_of(address_of(block), &tag), 1)) {
      if (__builtin_expect(domain.owns(tag), 1)) {
        if (__builtin_expect(domain.push(tag, block), 1)) return;
      }
    }
    release_slow(block);
  }

  // `*zero` tells whether the block is known to be all zeros.
  [[nodiscard]] static void* allocate_zeroable(std::size_t size, bool* zero) noexcept {
    *zero = false;
    if (size <= Sizes::kMaxSize) {
      if (void* const block = current_->magazines[Sizes::of(size)].pop()) return block;
    }
    Domain* const domain = bound();
    return domain == nullptr ? nullptr : heap_.allocate(*domain, size, zero);
  }
  [[nodiscard]] static void* allocate_aligned(std::size_t size, std::size_t alignment) noexcept {
    Domain* const domain = bound();
    return domain == nullptr ? nullptr : heap_.allocate_aligned(*domain, size, alignment, nullptr);
  }
  [[nodiscard]] static void* resize_in_place(void* block, std::size_t size) noexcept {
    return heap_.resize_in_place(*current_, block, size);
  }
  static std::size_t trim() noexcept { return heap_.trim(*current_); }

  [[nodiscard]] static Heap& heap() noexcept { return heap_; }
  // The calling thread's domain; for a thread without one, a domain for which
  // is_bound() is false.
  [[nodiscard]] static Domain& current() noexcept { return *current_; }

  // Options are read and the heap can be asked questions.
  static void ensure_started() noexcept {
    if (__builtin_expect(phase_.load(std::memory_order_acquire) != kStarted, 0)) start_once();
  }
  // For a constructor, once: does what the first slow path would do, and watches
  // for forks. The latter may allocate and takes a lock of libc, so that it
  // cannot be part of a slow path.
  static void start() noexcept {
    ensure_started();
    pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  }

 private:
  // These are called last and with the arguments of the fast path, which then
  // needs no stack frame.
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE void* allocate_large(std::size_t size) noexcept(
      Failure::kNoexcept) {
    if (__builtin_expect(size <= Sizes::kMaxSize, 1)) {
      void* const block = current_->pop(Sizes::of_large(size));
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return allocate_slow<Failure>(size);
  }
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE void* allocate_slow(std::size_t size) noexcept(
      Failure::kNoexcept) {
    if (Domain* const domain = bound()) {
      void* const block = heap_.allocate(*domain, size, nullptr);
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return Failure::out_of_memory(size);
  }
  static ALLOD_NOINLINE void release_slow(void* block) noexcept {
    if (block == nullptr) return;
    if (current_ == &gone_) return heap_.release_detached(block);
    Domain* const domain = bound();
    domain == nullptr ? heap_.release_detached(block) : heap_.release(*domain, block);
  }

  [[nodiscard]] static ALLOD_INLINE Domain* bound() noexcept {
    return __builtin_expect(current_->is_bound(), 1) ? current_ : bind();
  }
  // Null when the system gives no memory for a domain.
  [[nodiscard]] static ALLOD_COLD Domain* bind() noexcept {
    ensure_started();
    const bool late = current_ == &gone_;
    Domain* const domain = heap_.attach(late);
    if (domain == nullptr) return nullptr;
    current_ = domain;
    // Calls unbind when the thread ends, after its thread-local destructors; a
    // thread that is already ending is asked again, a few times.
    if (has_key_) pthread_setspecific(key_, domain);
    return domain;
  }
  static void unbind(void* domain) noexcept {
    heap_.detach(*static_cast<Domain*>(domain));
    current_ = &gone_;
  }

  static void start_once() noexcept {
    std::uint32_t expected = kAsleep;
    if (phase_.compare_exchange_strong(expected, kStarting, std::memory_order_acquire)) {
      heap_.start(Policy::options());
      has_key_ = pthread_key_create(&key_, &unbind) == 0;
      phase_.store(kStarted, std::memory_order_release);
      Policy::Platform::futex_wake(&phase_, kEverybody);
    }
    while (phase_.load(std::memory_order_acquire) != kStarted) {
      Policy::Platform::futex_wait(&phase_, kStarting);
    }
  }

  static void before_fork() noexcept {
    heap_.before_fork(current_->is_bound() ? current_ : nullptr);
  }
  static void after_fork_in_parent() noexcept { heap_.after_fork_in_parent(); }
  static void after_fork_in_child() noexcept {
    heap_.after_fork_in_child(current_->is_bound() ? current_ : nullptr);
    if (current_->is_bound()) current_->thread = heap_.space().platform().thread_id();
  }

  static constexpr std::uint32_t kAsleep = 0;
  static constexpr std::uint32_t kStarting = 1;
  static constexpr std::uint32_t kStarted = 2;
  static constexpr int kEverybody = 0x7fffffff;

  static inline constinit Heap heap_;
  // Owned by nobody, never written: of threads that have not allocated yet, and
  // of threads that have ended as far as we know.
  static inline constinit Domain nobody_;
  static inline constinit Domain gone_;
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Domain* current_ =
      &nobody_;
  static inline constinit std::atomic<std::uint32_t> phase_{kAsleep};
  static inline constinit pthread_key_t key_ = 0;
  static inline constinit bool has_key_ = false;
};

}  // namespace allod::thread
