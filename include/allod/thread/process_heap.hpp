// Layer 7: the heap of a process. Threads share domains by the magazines of their processor. A
// thread with many operations gets its own domain. If processors have no magazines, it first gets a
// cache.
#pragma once

#include "allod/thread/beats.hpp"
#include "allod/thread/own_front.hpp"
#include "allod/thread/places.hpp"
#include "allod/thread/processor_caches.hpp"
#include "allod/thread/sampling.hpp"
#include "allod/thread/shared_domains.hpp"

namespace allod::thread {

// One per policy. Everything is static and constant-initialised, as the first call may precede all
// constructors. Thread-safe throughout.
//
// Policy is that of heaps::Heap, with
//   static HeapOptions options()   read once, at the first slow path
// and perhaps a Sampler; see thread/sampling.hpp.
template <class Policy>
class ProcessHeap {
 public:
  using Heap = heaps::Heap<Policy>;
  using Domain = typename Heap::Domain;
  using Cache = typename Heap::Cache;
  using Turn = typename Heap::Turn;
  using Own = OwnFront<Heap>;
  using Inside = InsideOf<Turn>;
  using Front = typename Own::Front;
  using AtHand = typename Own::AtHand;
  using Sizes = typename Policy::Sizes;
  using Sampler = typename SamplerOf<Policy>::Type;
  using System = typename Policy::Platform;
  static_assert(os::Hosting<System>);

  // A block of at least `size` bytes. If there is none, returns Failure::out_of_memory(size).
  template <class Failure>
  [[nodiscard]] static ALLOD_INLINE void* allocate(std::size_t size) noexcept(Failure::kNoexcept) {
    if (__builtin_expect(size > Sizes::kTableMaxSize, 0)) return allocate_large<Failure>(size);
    void* const block = AtHand::now->pop_small(size);
    if (__builtin_expect(block != nullptr, 1)) return block;
    return allocate_at_processor<Failure>(size);
  }

  static ALLOD_INLINE void release(void* block) noexcept {
    const auto& slices = heap_.space().map().fast_slices();
    if (__builtin_expect(release_at_once(block, slices), 1)) return;
    release_slow(block);
  }
  // The first part of release(): false if the second has to follow. `slices` is 0, and nothing is
  // done, or the map's fast_slices().
  [[nodiscard]] static ALLOD_INLINE bool release_at_once(
      void* block, const std::atomic<std::size_t>& slices) noexcept {
    Front& front = *AtHand::now;
    space::Tag tag;
    if (__builtin_expect(heap_.space().map().fast_tag_of(address_of(block), slices, &tag), 1)) {
      if (__builtin_expect(front.owns(tag), 1)) {
        if (__builtin_expect(front.push(tag, block), 1)) return true;
      }
    }
    return false;
  }
  static ALLOD_NOINLINE ALLOD_HOT void release_slow(void* block) noexcept {
    Domain* const own = own_domain();
    if (__builtin_expect(own != nullptr && !Sampler::may_know(), 1)) {
      if (__builtin_expect(block != nullptr, 1)) heap_.release(*own, block);
      return;
    }
    if (may_cut_short()) {
      space::Tag tag;
      if (heap_.space().map().fast_tag_of(address_of(block), &tag) &&
          processors_.push(tag, block)) {
        return;
      }
    }
    if (block != nullptr) release_anyhow(block);
  }

  // Sets `*zero` to whether all bytes of the block are known to be zero.
  [[nodiscard]] static void* allocate_zeroable(std::size_t size, bool* zero) noexcept {
    *zero = false;
    if (size <= Sizes::kMaxSize) {
      if (void* const block = AtHand::now->pop(Sizes::of(size))) return block;
    }
    return allocate_anyhow(size, zero);
  }
  [[nodiscard]] static ALLOD_HOT void* allocate_aligned(std::size_t size,
                                                        std::size_t alignment) noexcept {
    if (alignment <= kSliceBytes) {
      const ClassIndex c = Sizes::of_aligned(size, alignment);
      if (c < Sizes::kCount) {
        void* const block = AtHand::now->pop(c);
        return block != nullptr ? block : allocate_class(c, nullptr, size, alignment);
      }
    }
    return sampled_span(with_domain([&](Domain& domain) noexcept {
                          return heap_.allocate_aligned(domain, size, alignment, nullptr);
                        }),
                        size);
  }
  [[nodiscard]] static ALLOD_HOT void* resize_in_place(void* block, std::size_t size) noexcept;
  // See Heap::allocate_growing.
  [[nodiscard]] static void* allocate_growing(std::size_t size) noexcept {
    return heap_.allocate_growing(own_domain(), size);
  }
  // Gives up memory of the calling thread and of all shared domains. Returns the purged bytes.
  static std::size_t trim() noexcept;

  // Deferred frees, for language runtimes. Slow paths of allocation call `function` on the
  // allocating thread without any lock, with a number that grows on each thread. It may allocate
  // and free; calls do not nest. Null ends the calls; one may still be under way.
  using DeferredFree = Beats::Function;
  static void set_deferred_free(DeferredFree function, void* context) noexcept {
    beats_.set(function, context);
    look_at_short_cut();
  }
  [[nodiscard]] static ALLOD_INLINE bool wants_beats() noexcept { return beats_.are_wanted(); }
  static void beat(bool force) noexcept { beats_.beat(force); }

  [[nodiscard]] static Heap& heap() noexcept { return heap_; }
  // The calling thread's front; for a thread without one, a front that owns no tag.
  [[nodiscard]] static Front& current() noexcept { return *AtHand::now; }

  // The calling thread's own domain, or null.
  [[nodiscard]] static ALLOD_INLINE Domain* own_domain() noexcept { return Own::domain(); }
  // See Heap::note_burst.
  static void note_burst() noexcept {
    if (Domain* const own = own_domain()) heap_.note_burst(*own);
  }
  // Returns the calling thread's cached blocks to where all threads can use them.
  static void collect() noexcept;

  // Before the calling thread makes a process that runs in this memory, on its thread-local
  // variables: a guest, by vfork, or clone with CLONE_VM. A guest cannot use magazines of
  // processors, since the kernel neither restarts its sequences nor tells its processor. So a
  // thread without a front is marked first, and takes turns while it is the guest. The thread's
  // next slow path in its own process removes the mark. A guest shares its thread's front: the
  // thread waits until it has ended.
  static void expect_guest() noexcept {
    System::Guest::expect();
    if (processors_.is_on() && AtHand::now->kind == heap::FrontKind::none) Own::mark_as_guest();
  }

  // See Heap::narrow_map.
  template <class Mappings>
  static void narrow_map(std::size_t limit, bool is_alone, Mappings&& each_mapping) noexcept {
    if (!is_interrupted()) heap_.narrow_map(limit, is_alone, each_mapping);
  }

  // See Heap::send_helper_away(); to be followed by let_helper_come().
  static bool send_helper_away() noexcept {
    return heap_.send_helper_away(is_interrupted() ? Heap::Wait::no : Heap::Wait::yes);
  }

  // Once, early: no more domains than the container's quota of processors has use for.
  static ALLOD_HOT void respect_quota() noexcept {
    const std::uint32_t quota = shared_.respect_quota(heap_);
    if (quota != 0) places_.set(quota);
  }

  // Whether the caller is a signal handler that interrupted its thread in a slow path. The heap may
  // then be half changed, and locks may be held.
  [[nodiscard]] static ALLOD_HOT bool is_interrupted() noexcept {
    const Domain* const own = Own::bound_domain();
    return Inside::is_anybody() || HeldLocks::any() || Heap::is_in_leaning_turn() ||
           (own != nullptr && own->in_slow_path.load(std::memory_order_relaxed));
  }

  // At the end of the process; see Heap::check_stocks.
  static void check_own_stocks() noexcept {
    if (Domain* const own = own_domain()) heap_.check_stocks(*own);
  }

  // For a thread that uses a first-class heap: lets heaps lean to it.
  static ALLOD_INLINE void take_seat() noexcept {
    if (__builtin_expect(Policy::Platform::own_word() == nullptr, 0)) take_first_seat();
  }

  // After sampling has begun or ended. The calling thread sees it at once, all others soon.
  static void switch_counting(bool on) noexcept;
  // realloc has made or changed a block that is a span.
  static void changed_span(void* block, std::size_t size) noexcept;
  // Counted blocks of a class that a thread has allocated and freed; Sizes::kCount stands for huge
  // blocks.
  struct Total {
    std::uint64_t allocated = 0;
    std::uint64_t freed = 0;
  };
  [[nodiscard]] static Total total_of(const Front& front, ClassIndex c) noexcept;
  // The same for threads without magazines, and those that have ended.
  [[nodiscard]] static Total total_elsewhere(ClassIndex c) noexcept {
    return {elsewhere_[c].allocated.load(std::memory_order_relaxed),
            elsewhere_[c].freed.load(std::memory_order_relaxed)};
  }
  // Reads the options, after which the heap answers questions.
  static void ensure_started() noexcept {
    if (__builtin_expect(phase_.load(std::memory_order_acquire) != kStarted, 0)) start_once();
  }
  // For a constructor, once: starts the heap, and watches for forks. The latter may allocate and
  // takes a lock of libc, so that it cannot be part of a slow path.
  static void start() noexcept {
    ensure_started();
    // An allocation may have come before there was a libpthread to give one.
    make_key();
    System::watch_forks(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  }

 private:
  // For a caller without a domain at hand: whether it is a signal handler that would wait for the
  // code that it interrupted, or for a fork that waits for this.
  [[nodiscard]] ALLOD_HOT static bool must_not_wait() noexcept {
    if (heap_.is_interrupting()) return true;
    const bool is_stuck = heap_.gate().is_closed() && (Own::is_away() || Inside::is_anybody());
    return __builtin_expect(is_stuck, 0) && !heap_.gate().lets_pass();
  }

  // Called last, and with the arguments of the fast path, which then needs no stack frame.
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_large(std::size_t size) noexcept(
      Failure::kNoexcept) {
    if (__builtin_expect(size <= Sizes::kMaxSize, 1)) {
      void* const block = AtHand::now->pop(Sizes::of_large(size));
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return allocate_or_fail<Failure>(size);
  }
  // For a size up to Sizes::kTableMaxSize.
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_at_processor(
      std::size_t size) noexcept(Failure::kNoexcept) {
    // From time to time, the slow path does other due work.
    if (may_cut_short() && __builtin_expect(++operations_ < 0, 1)) {
      void* const block = processors_.pop_small(size);
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return allocate_or_fail<Failure>(size);
  }
  // Whether the calling thread has no front, and so uses magazines of its processor.
  [[nodiscard]] static ALLOD_INLINE bool shares_processor() noexcept {
    return processors_.is_on() && AtHand::now->kind == heap::FrontKind::none;
  }
  // The same, without samples and beats. A hint that may be late.
  [[nodiscard]] static ALLOD_INLINE bool may_cut_short() noexcept {
    return __builtin_expect(AtHand::now == short_cut_.load(std::memory_order_relaxed), 1);
  }
  // Other threads may compute it at the same time: the last one to store has seen all changes.
  static ALLOD_HOT void look_at_short_cut() noexcept {
    const auto whose = []() noexcept -> const Front* {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const bool may =
          processors_.is_on() && !Sampler::may_know() && !Sampler::is_on() && !wants_beats();
      return may ? &AtHand::nobody : nullptr;
    };
    const Front* now;
    do {
      now = whose();
      short_cut_.store(now);
    } while (now != whose());
  }
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_or_fail(std::size_t size) noexcept(
      Failure::kNoexcept) {
    void* const block = allocate_anyhow(size, nullptr);
    if (__builtin_expect(block != nullptr, 1)) return block;
    return Failure::out_of_memory(size);
  }
  [[nodiscard]] static ALLOD_HOT void* allocate_anyhow(std::size_t size, bool* zero) noexcept {
    if (wants_beats()) return allocate_after_beat(size, zero);
    return allocate_any_size(size, zero);
  }
  [[nodiscard]] static ALLOD_COLD void* allocate_after_beat(std::size_t size, bool* zero) noexcept {
    beat(false);
    return allocate_any_size(size, zero);
  }
  [[nodiscard]] static ALLOD_INLINE void* allocate_any_size(std::size_t size, bool* zero) noexcept {
    if (__builtin_expect(size <= Sizes::kMaxSize, 1)) {
      const bool is_small = __builtin_expect(size <= Sizes::kTableMaxSize, 1);
      const ClassIndex c = is_small ? Front::small_class_of(size) : Sizes::of_large(size);
      return allocate_class(c, zero, size, 1);
    }
    return allocate_span(size, zero);
  }
  [[nodiscard]] static ALLOD_NOINLINE void* allocate_span(std::size_t size, bool* zero) noexcept {
    return sampled_span(
        with_domain([&](Domain& domain) noexcept { return heap_.allocate(domain, size, zero); }),
        size);
  }
  // When the magazine is empty.
  [[nodiscard]] static ALLOD_INLINE void* allocate_class(ClassIndex c, bool* zero, std::size_t size,
                                                         std::size_t alignment) noexcept {
    if (__builtin_expect(Sampler::is_on(), 0)) return allocate_counted(c, zero, size, alignment);
    Domain* const own = domain_now();
    if (shares_processor()) return refill_processor(c, zero);
    return refill(own, c, zero);
  }
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* refill_processor(ClassIndex c,
                                                                       bool* zero) noexcept;
  [[nodiscard]] static ALLOD_HOT void* refill(Domain* own, ClassIndex c, bool* zero) noexcept;
  // Calls `use` for the thread's own domain, or a shared one in turn. Null if there is none.
  template <class Use>
  [[nodiscard]] static void* with_domain(Use&& use) noexcept {
    if (Domain* const own = domain_now()) return use(*own);
    return must_not_wait() ? nullptr : in_turn(Inside{}, use);
  }
  template <class Use>
  [[nodiscard]] static void* in_turn(const Inside& inside, Use&& use) noexcept {
    const bool may_wait = inside.is_first();
    if (void* const result = shared_.with_any(heap_, may_wait, use)) return result;
    if (may_wait) return nullptr;
    Domain* const guest = heap_.attach();
    if (guest == nullptr) return nullptr;
    void* const result = use(*guest);
    heap_.detach(*guest);
    return result;
  }

  static ALLOD_NOINLINE ALLOD_HOT void release_anyhow(void* block) noexcept {
    Domain* const own = domain_now();
    if (__builtin_expect(Sampler::may_know(), 0) && !forget_sample(block)) return;
    own != nullptr ? heap_.release(*own, block) : release_shared(block);
  }
  static ALLOD_HOT void release_shared(void* block) noexcept;

  // The thread's own domain, which it may get just now, or null.
  [[nodiscard]] static Domain* domain_now() noexcept {
    Domain* const own = own_domain();
    if (__builtin_expect(own == nullptr, 0)) {
      advance();
    } else if (__builtin_expect(heap_.space().nodes() > 1, 0)) {
      follow(*own);
    } else {
      return own;
    }
    return own_domain();
  }
  // The shared domain that owns the block at the moment, or null.
  [[nodiscard]] static Domain* shared_owner(void* block) noexcept {
    const space::PageMap& map = heap_.space().map();
    const space::Tag tag = map.tag_of(address_of(block));
    // A slab that leaves a first-class heap is tagged as an orphan before a domain adopts it.
    if (!space::is_slab(tag) || space::is_heaps(tag)) return nullptr;
    slab::Owner* const owner = slab::as_slab(map.span_of(address_of(block)))->owner();
    auto* const domain = static_cast<Domain*>(owner);
    return domain != nullptr && is_shared(*domain) ? domain : nullptr;
  }
  // Does not change during a turn.
  [[nodiscard]] static bool is_shared(const Domain& domain) noexcept {
    return domain.state.load(std::memory_order_relaxed) == heap::DomainState::shared;
  }

  // --- fronts of threads, in thread/lifetime.hpp -------------------------------------------

  // Counts an operation of a thread without a domain. After many, it gets a cache, and then a
  // domain if there is a place.
  static void advance() noexcept {
    if (Own::is_marked()) Own::look_who_is_here();
    const std::int32_t done = ++operations_ + kBeforeDomain;
    if (__builtin_expect(done == 1 || done >= kBeforeCache, 0)) advance_to(done);
  }
  // A miss stands for the operations that the magazine has served.
  static void count_cached(const Cache& cache, ClassIndex c) noexcept {
    operations_ += static_cast<std::int32_t>(cache.magazines[c].capacity() / 2);
  }
  static ALLOD_NOINLINE ALLOD_HOT void advance_to(std::int32_t done) noexcept;
  [[nodiscard]] ALLOD_HOT static bool become_owner() noexcept;
  static ALLOD_HOT void move_cache(Cache* left) noexcept;
  static ALLOD_NOINLINE void follow(Domain& own) noexcept;
  [[nodiscard]] static bool is_worth_leaving(Domain& own) noexcept;
  static void bind(Front* front) noexcept;
  static void make_key() noexcept;
  [[nodiscard]] static bool has_key() noexcept { return has_key_.load(std::memory_order_acquire); }
  static ALLOD_NOINLINE void take_first_seat() noexcept;
  static ALLOD_HOT void unbind(void*) noexcept;
  static ALLOD_NOINLINE ALLOD_HOT void enter_processors() noexcept;

  // --- counting and sampling, in thread/counting.hpp ---------------------------------------

  // Allocates from class `c` when the magazine is empty.
  static void* allocate_counted(ClassIndex c, bool* zero, std::size_t size,
                                std::size_t alignment) noexcept;
  static void* refill_counted(ClassIndex c, bool* zero, std::size_t size,
                              std::size_t alignment) noexcept;
  [[nodiscard]] static std::uint64_t blocks_to_sample(std::size_t bytes) noexcept;
  // A block that is a span, or null; it may become a sample.
  [[nodiscard]] static ALLOD_INLINE void* sampled_span(void* block, std::size_t size) noexcept {
    if (__builtin_expect(Sampler::is_on(), 0) && block != nullptr) count_span(block, size);
    return block;
  }
  static void count_span(void* block, std::size_t size) noexcept;
  [[nodiscard]] static void* resize_counted(void* block, std::size_t size) noexcept;
  [[nodiscard]] static heap::ClassCount* counts_of(Front& front) noexcept;
  static void count_freed(space::Tag tag) noexcept;
  [[nodiscard]] static bool forget_sample(void* block) noexcept;
  static ALLOD_HOT void count_from_now(Front& front) noexcept;
  static ALLOD_HOT void keep_counts(Front& front) noexcept;

  static ALLOD_HOT void start_once() noexcept;
  static void before_fork() noexcept;
  static void after_fork_in_parent() noexcept;
  static void after_fork_in_child() noexcept;

  // Operations after which a thread gets a cache, and a domain.
  static constexpr std::int32_t kBeforeCache = 128;
  static constexpr std::int32_t kBeforeDomain = 256;
  static constexpr std::uint32_t kAsleep = 0;
  static constexpr std::uint32_t kStarting = 1;
  static constexpr std::uint32_t kStarted = 2;
  static constexpr int kEverybody = 0x7fffffff;

  static inline constinit Heap heap_;
  static inline constinit SharedDomains<Heap> shared_;
  // Small members before large ones, beside small ones of other files: a large array that is hardly
  // touched between them would cost a page.
  static inline constinit Places places_;
  static inline constinit std::atomic<std::uint32_t> phase_{kAsleep};
  static inline constinit typename System::ThreadEnd end_;
  static inline constinit std::atomic<bool> has_key_{false};
  // The front of threads that may take the short cut to their processor's magazines, or null.
  static inline constinit std::atomic<const Front*> short_cut_{nullptr};
  static inline constinit Beats beats_;
  static inline constinit ProcessorCaches<Heap> processors_;
  // Operations while the thread had no domain, less kBeforeDomain.
  ALLOD_THREAD_LOCAL(std::int32_t, operations_, -kBeforeDomain);
  // How often the thread had done kBeforeDomain of them.
  ALLOD_THREAD_LOCAL(std::uint32_t, rounds_, 0);
  // Counts of threads without magazines, and of threads that have ended.
  static inline constinit SharedCount elsewhere_[Sizes::kCount + 1] = {};
};

}  // namespace allod::thread

#include "allod/thread/counting.hpp"
#include "allod/thread/lifetime.hpp"
#include "allod/thread/slow_path.hpp"
