// Caches of processors: threads on a processor share its magazines.
#pragma once

#include "allod/thread/shared_domains.hpp"

namespace allod::thread {

// The alternative to caches of threads: a thread that does little, or is one of very many, needs no
// cache of its own. Each cache is over the shared domain of its processor and takes only blocks of
// that, like the cache of a thread. Its magazines keep their size, and change only by restartable
// sequences; see os/linux/restartable.hpp. Blocks on their way between the cache and a domain
// belong to the calling thread.
//
// Static and constant-initialised. Thread-safe. Safe in signal handlers, except functions that make
// or fill a cache, which take turns on domains.
template <class Heap>
class ProcessorCaches {
 public:
  using Domain = typename Heap::Domain;
  using Cache = typename Heap::Cache;
  using Turn = typename Heap::Turn;
  using Restartable = typename Heap::Platform::Restartable;
  using Place = typename Restartable::Place;
  using Sequence = os::Sequence;

  constexpr ProcessorCaches() noexcept = default;

  // Once, before threads ask. Does nothing without restartable sequences.
  void start(Heap& heap) noexcept {
    const std::size_t part = kAllBytes / heap.processors();
    class_bytes_ = (part < kLeastBytes ? kLeastBytes : part) / kShare;
    if (class_bytes_ > kMostClassBytes) class_bytes_ = kMostClassBytes;
    on_ = Restartable::start();
  }
  [[nodiscard]] ALLOD_INLINE bool is_on() const noexcept { return on_; }
  // Whether the calling thread has to enter() before caches serve it. leave() must follow before
  // its end.
  [[nodiscard]] ALLOD_INLINE bool is_outside() const noexcept {
    return on_ && Restartable::Area::is_missing();
  }
  static void enter() noexcept { Restartable::Area::enter(); }
  static void leave() noexcept { Restartable::Area::leave(); }
  // Whether caches serve the calling thread, or may after enter().
  [[nodiscard]] bool are_open() const noexcept { return on_ && !Restartable::Area::is_refused(); }

  // A block of class `c`, or null.
  [[nodiscard]] ALLOD_HOT void* pop(ClassIndex c) noexcept {
    return pop_by([&](Cache& cache) noexcept -> auto& { return cache.magazines[c]; });
  }
  // A block for `size`, at most Sizes::kTableMaxSize, or null.
  [[nodiscard]] ALLOD_INLINE void* pop_small(std::size_t size) noexcept {
    return pop_by([&](Cache& cache) noexcept -> auto& { return cache.small_magazine(size); });
  }
  // Takes a block with that tag if its domain owns it and there is room.
  [[nodiscard]] ALLOD_HOT bool push(space::Tag tag, void* block) noexcept {
    for (;;) {
      const Place here = Restartable::place();
      Cache* const cache = at(here.processor);
      if (cache == nullptr || !cache->owns(tag)) return false;
      switch (push_to(here, cache->magazine_of(tag), block)) {
        case Sequence::done:
          return true;
        case Sequence::refused:
          return false;
        case Sequence::moved:
          continue;
      }
    }
  }

  // A block from the processor's domain, and more for its cache. Null without memory or a cache, or
  // if another thread has a turn on the domain.
  [[nodiscard]] ALLOD_HOT void* refill(Heap& heap, SharedDomains<Heap>& domains, ClassIndex c,
                                       bool* zero) noexcept {
    const Place here = Restartable::place();
    Cache* const cache = at_or_made(heap, domains, here.processor);
    if (cache == nullptr) return nullptr;
    Turn turn{cache->home, heap.gate(), Turn::Wait::no};
    if (!turn) return nullptr;
    void* const block = heap.allocate_class(cache->home, c, zero);
    heap::Magazine& from = cache->home.magazines[c];
    heap::Magazine& to = cache->magazines[c];
    for (std::uint32_t i = to.capacity() / 2; i > 0; --i) {
      void* const more = from.pop();
      if (more == nullptr) break;
      if (push_to(here, to, more) == Sequence::done) continue;
      static_cast<void>(from.push(more));
      break;
    }
    return block;
  }
  // Returns half of a full magazine to the domain. In a turn on that.
  ALLOD_HOT void unload(Heap& heap, Domain& home, ClassIndex c) noexcept {
    const Place here = Restartable::place();
    Cache* const cache = at(here.processor);
    if (cache == nullptr || &cache->home != &home) return;
    unload_up_to(heap, *cache, here, c, (cache->magazines[c].capacity() + 1) / 2);
  }
  // Returns the blocks of all caches to their domains.
  void empty_all(Heap& heap, typename Turn::Wait wait) noexcept {
    if (!on_) return;
    if (Restartable::close()) {
      for_each([&](Cache& cache) noexcept { heap.empty_cache(cache, wait); });
    }
    Restartable::open();
  }

  // Between these, only the caller is in slow paths.
  void before_fork() noexcept {
    if (!on_) return;
    const bool at_rest = Restartable::close();
    for_each([&](Cache& cache) noexcept { cache.is_at_rest = at_rest; });
  }
  void after_fork_in_parent() noexcept {
    if (on_) Restartable::open();
  }
  // The engine has forgotten caches that were not at rest.
  void after_fork_in_child() noexcept {
    if (!on_) return;
    for (std::atomic<Cache*>& place : caches_) {
      const Cache* const cache = place.load(std::memory_order_relaxed);
      if (cache != nullptr && !cache->is_at_rest) place.store(nullptr, std::memory_order_relaxed);
    }
    Restartable::reset_in_child();
  }

 private:
  // Processors with higher numbers have no cache.
  static constexpr std::size_t kMost = 1024;
  // The room of all caches together, roughly, and the least for one; the share of one class.
  static constexpr std::size_t kAllBytes = std::size_t{4} << 20;
  static constexpr std::size_t kLeastBytes = std::size_t{128} << 10;
  static constexpr std::size_t kShare = 32;
  static constexpr std::size_t kMostClassBytes = std::size_t{32} << 10;

  [[nodiscard]] ALLOD_INLINE Cache* at(std::size_t processor) const noexcept {
    if (processor >= kMost) return nullptr;
    return caches_[processor].load(std::memory_order_acquire);
  }
  [[nodiscard]] Cache* at_or_made(Heap& heap, SharedDomains<Heap>& domains,
                                  std::size_t processor) noexcept {
    if (processor >= kMost) return nullptr;
    Cache* const there = caches_[processor].load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make(heap, domains, processor);
  }
  [[nodiscard]] ALLOD_COLD Cache* make(Heap& heap, SharedDomains<Heap>& domains,
                                       std::size_t processor) noexcept {
    Domain* const home = domains.of_processor(heap, static_cast<std::uint32_t>(processor));
    if (home == nullptr) return nullptr;
    Cache* const made = heap.attach_cache(*home);
    if (made == nullptr) return nullptr;
    heap.equip_cache(*made, class_bytes_);
    Cache* there = nullptr;
    if (caches_[processor].compare_exchange_strong(there, made)) return made;
    heap.detach_cache(*made);
    return there;
  }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    for (const std::atomic<Cache*>& place : caches_) {
      if (Cache* const cache = place.load(std::memory_order_acquire)) visit(*cache);
    }
  }
  ALLOD_HOT void unload_up_to(Heap& heap, Cache& cache, Place here, ClassIndex c,
                              std::uint32_t most) noexcept {
    void* block;
    for (; most > 0; --most) {
      if (pop_from(here, cache.magazines[c], &block) != Sequence::done) return;
      heap.release(cache.home, block);
    }
  }
  // `find` returns the magazine of a cache.
  template <class Find>
  [[nodiscard]] ALLOD_INLINE void* pop_by(Find&& find) noexcept {
    for (;;) {
      const Place here = Restartable::place();
      Cache* const cache = at(here.processor);
      if (cache == nullptr) return nullptr;
      void* block;
      switch (pop_from(here, find(*cache), &block)) {
        case Sequence::done:
          return block;
        case Sequence::refused:
          return nullptr;
        case Sequence::moved:
          continue;
      }
    }
  }
  [[nodiscard]] static ALLOD_INLINE Sequence pop_from(Place here, heap::Magazine& from,
                                                      void** block) noexcept {
    return Restartable::pop(here, &from.top, &from.bottom, block);
  }
  [[nodiscard]] static ALLOD_INLINE Sequence push_to(Place here, heap::Magazine& to,
                                                     void* block) noexcept {
    return Restartable::push(here, &to.top, &to.limit, block);
  }

  std::atomic<Cache*> caches_[kMost] = {};
  bool on_ = false;
  std::size_t class_bytes_ = 0;
};

}  // namespace allod::thread
