// Layer 7: the heap of a process. Threads share domains, by the magazines of the processor that
// they are on; one that does much gets a domain of its own. Where there are no magazines of
// processors, a thread gets a cache in between.
#pragma once

#include <pthread.h>

#include "allod/os/linux/at_fork.hpp"
#include "allod/thread/beats.hpp"
#include "allod/thread/own_front.hpp"
#include "allod/thread/places.hpp"
#include "allod/thread/processor_caches.hpp"
#include "allod/thread/sampling.hpp"
#include "allod/thread/shared_domains.hpp"

namespace allod::thread {

// One per policy. Everything is static and constant-initialised: the first call
// may come before any constructor. Thread-safe throughout.
//
// Policy adds to what the heap asks for:
//   static HeapOptions options()   read once, at the first slow path
// and may add a Sampler; see thread/sampling.hpp.
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

  // A block of at least `size` bytes. When there is none, the result is that of
  // Failure::out_of_memory(size), called last.
  template <class Failure>
  [[nodiscard]] static ALLOD_INLINE void* allocate(std::size_t size) noexcept(Failure::kNoexcept) {
    if (__builtin_expect(size > Sizes::kTableMaxSize, 0)) return allocate_large<Failure>(size);
    void* const block = AtHand::now->pop_small(size);
    if (__builtin_expect(block != nullptr, 1)) return block;
    return allocate_slow<Failure>(size);
  }

  static ALLOD_INLINE void release(void* block) noexcept {
    const auto& slices = heap_.space().map().fast_slices();
    if (__builtin_expect(release_at_once(block, slices), 1)) return;
    release_slow(block);
  }
  // Both parts of release() apart: false where the second has to follow. `slices` is 0, and nothing
  // is done, or the map's fast_slices().
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
    if (block == nullptr) return;
    Domain* const own = own_domain();
    if (__builtin_expect(own != nullptr && !Sampler::may_know(), 1)) {
      return heap_.release(*own, block);
    }
    if (may_cut_short()) {
      space::Tag tag;
      if (heap_.space().map().fast_tag_of(address_of(block), &tag) &&
          processors_.push(tag, block)) {
        return;
      }
    }
    release_anyhow(block);
  }

  // `*zero` tells whether the block is known to be all zeros.
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
  // What the calling thread has at hand, and what all threads share.
  static std::size_t trim() noexcept;

  // Deferred frees, for language runtimes: `function` is called from slow paths of
  // allocation, on the thread that allocates and without any lock, with a number that
  // grows on each thread. It may allocate and free, and is not called again meanwhile.
  // Null ends that; a call may then still be under way.
  using DeferredFree = Beats::Function;
  static void set_deferred_free(DeferredFree function, void* context) noexcept {
    beats_.set(function, context);
    look_at_short_cut();
  }
  [[nodiscard]] static ALLOD_INLINE bool wants_beats() noexcept { return beats_.are_wanted(); }
  static void beat(bool force) noexcept { beats_.beat(force); }

  [[nodiscard]] static Heap& heap() noexcept { return heap_; }
  // What the calling thread has of its own: for a thread with nothing, a front that owns no tag.
  [[nodiscard]] static Front& current() noexcept { return *AtHand::now; }

  // The calling thread's own domain, or null.
  [[nodiscard]] static ALLOD_INLINE Domain* own_domain() noexcept { return Own::domain(); }
  // See Heap::note_burst.
  static void note_burst() noexcept {
    if (Domain* const own = own_domain()) heap_.note_burst(*own);
  }
  // What the calling thread has at hand, where every thread can use it.
  static void collect() noexcept;

  // The calling thread is about to make a process that runs in this memory, on its thread-local
  // variables: vfork, or clone with CLONE_VM. There, magazines of processors are nothing for it,
  // as the kernel restarts no sequence of such a process, nor says where it runs. So a thread that
  // has nothing of its own is marked before, and takes turns as long as it is that process. In the
  // thread itself, the mark goes with its next slow path. What a thread has of its own, the process
  // has as well: the thread waits until it has gone.
  static void expect_guest() noexcept {
    os::LinuxGuest::expect();
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

  // Once, early: no more domains than the container of the process has use for.
  static ALLOD_HOT void respect_quota() noexcept {
    const std::uint32_t quota = shared_.respect_quota(heap_);
    if (quota != 0) places_.set(quota);
  }

  // Has the caller, a signal handler, interrupted its own thread in a slow path? The heap is then
  // half changed, or its locks are held.
  [[nodiscard]] static ALLOD_HOT bool is_interrupted() noexcept {
    const Domain* const own = Own::bound_domain();
    return Inside::is_anybody() || HeldLocks::any() || Heap::is_in_leaning_turn() ||
           (own != nullptr && own->in_slow_path.load(std::memory_order_relaxed));
  }

  // At the end of the process; see Heap::check_stocks.
  static void check_own_stocks() noexcept {
    if (Domain* const own = own_domain()) heap_.check_stocks(*own);
  }

  // For a thread that uses a first-class heap: heaps may lean to it from now on.
  static ALLOD_INLINE void take_seat() noexcept {
    if (__builtin_expect(Policy::Platform::own_word() == nullptr, 0)) take_first_seat();
  }

  // Sampling has begun, or ended. Every thread will see it; the calling one at once.
  static void switch_counting(bool on) noexcept;
  // A block that is a span, and that realloc has made or changed.
  static void changed_span(void* block, std::size_t size) noexcept;
  // Blocks of a class that a thread has been given and has freed while that was counted; of
  // huge blocks for the class Sizes::kCount.
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
  // Options are read and the heap can be asked questions.
  static void ensure_started() noexcept {
    if (__builtin_expect(phase_.load(std::memory_order_acquire) != kStarted, 0)) start_once();
  }
  // For a constructor, once: does what the first slow path would do, and watches
  // for forks. The latter may allocate and takes a lock of libc, so that it
  // cannot be part of a slow path.
  static void start() noexcept {
    ensure_started();
    os::at_fork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  }

 private:
  // For a caller without a domain at hand: is it a signal handler that would wait for what it has
  // interrupted, or for a fork that waits for that?
  [[nodiscard]] ALLOD_HOT static bool must_not_wait() noexcept {
    if (heap_.is_interrupting()) return true;
    const bool is_stuck = heap_.gate().is_closed() && (Own::is_away() || Inside::is_anybody());
    return __builtin_expect(is_stuck, 0) && !heap_.gate().lets_pass();
  }

  // These are called last and with the arguments of the fast path, which then
  // needs no stack frame.
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_large(std::size_t size) noexcept(
      Failure::kNoexcept) {
    if (__builtin_expect(size <= Sizes::kMaxSize, 1)) {
      void* const block = AtHand::now->pop(Sizes::of_large(size));
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return allocate_slow<Failure>(size);
  }
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_slow(std::size_t size) noexcept(
      Failure::kNoexcept) {
    if (size > Sizes::kTableMaxSize || !may_cut_short()) return allocate_or_fail<Failure>(size);
    return allocate_at_processor<Failure>(size);
  }
  template <class Failure>
  [[nodiscard]] static ALLOD_NOINLINE ALLOD_HOT void* allocate_at_processor(
      std::size_t size) noexcept(Failure::kNoexcept) {
    // From time to time the slow path looks what else is due.
    if (__builtin_expect(++operations_ < kBeforeDomain, 1)) {
      void* const block = processors_.pop_small(size);
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return allocate_or_fail<Failure>(size);
  }
  // Has the calling thread nothing of its own, so that magazines of the processor are what it uses?
  [[nodiscard]] static ALLOD_INLINE bool shares_processor() noexcept {
    return processors_.is_on() && AtHand::now->kind == heap::FrontKind::none;
  }
  // The same, and nothing but a block is wanted: no samples, no beats. A hint that may be late.
  [[nodiscard]] static ALLOD_INLINE bool may_cut_short() noexcept {
    return short_cut_.load(std::memory_order_relaxed) && AtHand::now->kind == heap::FrontKind::none;
  }
  // Others may look at the same time: who stores last has seen what all have done before.
  static ALLOD_HOT void look_at_short_cut() noexcept {
    const auto may = []() noexcept {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return processors_.is_on() && !Sampler::may_know() && !Sampler::is_on() && !wants_beats();
    };
    bool now;
    do {
      now = may();
      short_cut_.store(now);
    } while (now != may());
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
  // Calls `use` for the thread's own domain, or a shared one in turn; null when there
  // is none.
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

  // The thread's own domain, or null; it may have come to one just now.
  [[nodiscard]] static Domain* domain_now() noexcept {
    if (__builtin_expect(own_domain() == nullptr, 0)) advance();
    return own_domain();
  }
  // The shared domain that owns the block, if one does just now.
  [[nodiscard]] static Domain* shared_owner(void* block) noexcept {
    const space::PageMap& map = heap_.space().map();
    const space::Tag tag = map.tag_of(address_of(block));
    // What a first-class heap leaves is tagged as an orphan before a domain adopts it.
    if (!space::is_slab(tag) || space::is_heaps(tag)) return nullptr;
    slab::Owner* const owner = slab::as_slab(map.span_of(address_of(block)))->owner();
    auto* const domain = static_cast<Domain*>(owner);
    return domain != nullptr && is_shared(*domain) ? domain : nullptr;
  }
  // Stays so during a turn.
  [[nodiscard]] static bool is_shared(const Domain& domain) noexcept {
    return domain.state.load(std::memory_order_relaxed) == heap::DomainState::shared;
  }

  // --- how a thread comes to more of its own, in thread/lifetime.hpp -----------------------------

  // Counts an operation of a thread without a domain. Who makes many of them gets a
  // cache, and then a domain as long as there is a place.
  static void advance() noexcept {
    if (Own::is_marked()) Own::look_who_is_here();
    const std::uint32_t done = ++operations_;
    if (__builtin_expect(done == 1 || done >= kBeforeCache, 0)) advance_to(done);
  }
  // A miss stands for the operations that the magazine has served.
  static void count_cached(const Cache& cache, ClassIndex c) noexcept {
    operations_ += cache.magazines[c].capacity() / 2;
  }
  static ALLOD_NOINLINE ALLOD_HOT void advance_to(std::uint32_t done) noexcept;
  [[nodiscard]] ALLOD_HOT static bool become_owner() noexcept;
  static void bind(Front* front) noexcept;
  [[nodiscard]] static bool has_key() noexcept { return has_key_.load(std::memory_order_acquire); }
  static ALLOD_NOINLINE void take_first_seat() noexcept;
  static ALLOD_HOT void unbind(void*) noexcept;

  // --- counting and sampling, in thread/counting.hpp ---------------------------------------

  // An allocation of class `c`, when the magazine has handed out all.
  static void* allocate_counted(ClassIndex c, bool* zero, std::size_t size,
                                std::size_t alignment) noexcept;
  static void* refill_counted(ClassIndex c, bool* zero, std::size_t size,
                              std::size_t alignment) noexcept;
  [[nodiscard]] static std::uint64_t blocks_to_sample(std::size_t bytes) noexcept;
  // A block that is a span, or null; perhaps it becomes a sample.
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
  static constexpr std::uint32_t kBeforeCache = 128;
  static constexpr std::uint32_t kBeforeDomain = 256;
  static constexpr std::uint32_t kAsleep = 0;
  static constexpr std::uint32_t kStarting = 1;
  static constexpr std::uint32_t kStarted = 2;
  static constexpr int kEverybody = 0x7fffffff;

  static inline constinit Heap heap_;
  static inline constinit SharedDomains<Heap> shared_;
  // What is small comes before what is large, and so lies beside what is small in other files: a
  // large array that is hardly touched between them would cost a page.
  static inline constinit Places places_;
  static inline constinit std::atomic<std::uint32_t> phase_{kAsleep};
  static inline constinit pthread_key_t key_ = 0;
  static inline constinit std::atomic<bool> has_key_{false};
  static inline constinit std::atomic<bool> short_cut_{false};
  static inline constinit Beats beats_;
  static inline constinit ProcessorCaches<Heap> processors_;
  // Operations while the thread had no domain.
  [[gnu::tls_model(
      "initial-exec")]] static inline constinit thread_local std::uint32_t operations_ = 0;
  // What threads without magazines, and threads that have ended, have counted.
  static inline constinit SharedCount elsewhere_[Sizes::kCount + 1] = {};
};

}  // namespace allod::thread

#include "allod/thread/counting.hpp"
#include "allod/thread/lifetime.hpp"
#include "allod/thread/slow_path.hpp"
