// A heap that is composed from parts: allod::Tailored<Parts>.
#pragma once

#include <cstring>
#include <new>
#include <source_location>
#include <utility>

#include "allod/tailored/front.hpp"
#include "allod/tailored/hardening.hpp"

namespace allod {

// See docs/tailored.md for the parts. Functions that allocate return null without memory, or
// without a class for the size. A block is aligned to the largest power of two that divides the
// size of its class, at most 4 KiB. All blocks end with the heap. Constant-initialised. Thread-safe
// as Threads says, except reset() and the destructor.
template <class Composition>
class ComposedHeap : private tailored::Owner {
  using P = tailored::Repaired<Composition>;
  using Core = tailored::Core<P>;
  using Sizes = typename Core::Sizes;
  using Hardening = tailored::Hardening<Core>;
  using Front = tailored::Front<Sizes>;
  using Fronts = tailored::ThreadFronts<ComposedHeap, Front>;
  using Lock = typename P::Threads::Lock;
  using Where = std::source_location;
  static constexpr ClassIndex kClasses = Sizes::kCount;
  static constexpr Sharing kSharing = P::Threads::kSharing;
  static constexpr bool kCaching = kSharing == Sharing::caching;
  static constexpr bool kChecked = P::Checks::kChecked;
  static constexpr bool kHardened = P::Checks::kHardened;
  // Every call goes to the slabs, so that none is missed.
  static constexpr bool kWatched = kChecked || P::Observer::kWatches || kAddressSanitizer;

 public:
  using Pages = typename P::Pages;
  using Observer = typename P::Observer;
  using Figures = tailored::Figures;
  static constexpr bool kServesAnySize = P::Storage::kAnySize;
  // The largest size of a class.
  static constexpr std::size_t kLargestClass =
      Sizes::kLargest - (kHardened && kClasses > 0 ? heaps::SizedCanary::kBytes : 0);
  static constexpr std::size_t kChunkBytes = Pages::kChunkBytes;
  static constexpr bool kManyThreads = kSharing != Sharing::one_thread;
  // Whether every block of 16 bytes or more is aligned to 16.
  static constexpr bool kAligns = Sizes::kAligns;

  // `name` is for reports and must outlive the heap; `pages` go to the page source.
  template <class... A>
  constexpr explicit ComposedHeap(const char* name = "", A&&... pages) noexcept
      : Owner{name, kChunkBytes, &allocate_of, &release_of, &usable_size_of},
        core_{static_cast<A&&>(pages)...} {}
  ComposedHeap(const ComposedHeap&) = delete;
  ComposedHeap& operator=(const ComposedHeap&) = delete;
  ~ComposedHeap() {
    end();
    if constexpr (kChecked) guardian_.end();
  }

  // --- allocation ----------------------------------------------------------------------

  // For a size, and so a class, known at compile time.
  template <std::size_t kSize>
  [[nodiscard]] ALLOD_INLINE void* allocate(Where where = Where::current()) noexcept {
    constexpr ClassIndex c = Sizes::of(room_for(kSize));
    static_assert(c < kClasses || kServesAnySize,
                  "no size class of the heap holds so large a block");
    return c < kClasses ? from_class(c, kSize, where) : from_any(kSize, 1, where);
  }
  [[nodiscard]] ALLOD_INLINE void* allocate(std::size_t size,
                                            Where where = Where::current()) noexcept {
    if (kClasses == 0 || __builtin_expect(size > kLargestClass, 0)) {
      return from_any(size, 1, where);
    }
    return from_class(Sizes::of(room_for(size)), size, where);
  }
  // `alignment`: a power of two.
  [[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment,
                                       Where where = Where::current()) noexcept {
    const ClassIndex c = Sizes::of_aligned(room_for(size), alignment);
    return c < kClasses ? from_class(c, size, where) : from_any(size, alignment, where);
  }
  [[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t size,
                                      Where where = Where::current()) noexcept {
    std::size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
    void* const block = allocate(bytes, where);
    return block == nullptr ? nullptr : std::memset(block, 0, bytes);
  }
  // A block that is large enough, and less than twice too large, stays. Null, and no change,
  // without memory.
  [[nodiscard]] void* reallocate(void* block, std::size_t size,
                                 Where where = Where::current()) noexcept {
    if (block == nullptr) return allocate(size, where);
    const std::size_t usable = usable_size(block);
    // A watched block has the size that was requested last.
    if (!kWatched && size <= usable && size >= usable / 2) return block;
    void* const moved = allocate(size, where);
    if (moved == nullptr) return nullptr;
    const std::size_t kept = size < usable ? size : usable;
    // Tools know the block by its requested size, which is unknown here.
    if (core_.announces()) announce_readable(block, kept);
    std::memcpy(moved, block, kept);
    deallocate(block);
    return moved;
  }

  // --- frees ---------------------------------------------------------------------------

  // `block`: of this heap, or null.
  ALLOD_INLINE void deallocate(void* block) noexcept {
    if (__builtin_expect(block == nullptr, 0)) return;
    if constexpr (kWatched) {
      release_watched(block, kUnknown);
    } else {
      const tailored::Content content = core_.content_of(block);
      if (kServesAnySize && __builtin_expect(content > kClasses, 0)) return release_any(block);
      to_class(content - 1U, block);
    }
  }
  // `block`: not null, and allocated with this size.
  template <std::size_t kSize>
  ALLOD_INLINE void deallocate(void* block) noexcept {
    deallocate(block, kSize);
  }
  ALLOD_INLINE void deallocate(void* block, std::size_t size) noexcept {
    if constexpr (kWatched) {
      release_watched(block, size);
    } else {
      if (kClasses == 0 || __builtin_expect(size > Sizes::kLargest, 0)) return release_any(block);
      to_class(Sizes::of(size), block);
    }
  }

  // --- questions -----------------------------------------------------------------------

  // The usable bytes of a block in use.
  [[nodiscard]] std::size_t usable_size(const void* block) noexcept {
    if constexpr (kHardened) {
      if (!core_.announces()) return hardening_.size_of(core_, *this, block);
    }
    return core_.usable_size(block);
  }
  // Whether the address is in memory of the heap.
  [[nodiscard]] bool contains(const void* address) noexcept {
    const WholeGuard guard{lock_};
    return core_.contains(address);
  }
  // Calls visit(block, bytes) for every block in use; it must not use the heap.
  template <class Visit>
  void for_each_block(Visit&& visit) noexcept {
    empty_magazines();
    const WholeGuard guard{lock_};
    if constexpr (kHardened) {
      core_.for_each_block([&](void* block, std::size_t) noexcept {
        if (!hardening_.is_waiting(block)) visit(block, usable_size(block));
      });
    } else {
      core_.for_each_block(visit);
    }
  }
  [[nodiscard]] Figures figures() noexcept {
    empty_magazines();
    const WholeGuard guard{lock_};
    Figures figures = core_.figures();
    if constexpr (kHardened) {
      hardening_.for_each_waiting([&](const void* block) noexcept {
        --figures.live_blocks;
        figures.live_bytes -= core_.usable_size(block);
      });
    }
    return figures;
  }
  [[nodiscard]] const char* name() const noexcept { return Owner::name; }
  [[nodiscard]] Pages& pages() noexcept { return core_.pages(); }
  [[nodiscard]] Observer& observer() noexcept { return observer_; }

  // --- recycling -----------------------------------------------------------------------

  // Returns all free memory to the page source, except that in other threads' magazines. Returns
  // the bytes.
  std::size_t recycle() noexcept {
    empty_magazines();
    const WholeGuard guard{lock_};
    if constexpr (kHardened) hardening_.end_waiting(core_, *this, giver());
    return core_.recycle(0, 0);
  }
  // Frees all blocks and all memory. The heap can be used again.
  void reset() noexcept {
    end();
    front_.~OwnFront();
    new (&front_) OwnFront{};
  }

  // --- for the heap of a process -------------------------------------------------------

  [[nodiscard]] tailored::Chunk* chunk_of(const void* block) noexcept {
    return core_.chunk_of(block);
  }
  [[nodiscard]] Owner* owner() noexcept { return this; }
  void lock_for_fork() noexcept {
    if constexpr (kCaching) Fronts::lock_for_fork();
    if constexpr (requires { lock_.lock_for_fork(); }) {
      lock_.lock_for_fork();
    } else {
      lock_.lock();
    }
  }
  void unlock_in_parent() noexcept {
    if constexpr (requires { lock_.unlock_in_parent(); }) {
      lock_.unlock_in_parent();
    } else {
      lock_.unlock();
    }
    if constexpr (kCaching) Fronts::unlock_in_parent();
  }
  void reset_in_child() noexcept {
    new (&lock_) Lock{};
    if constexpr (kCaching) Fronts::reset_in_child();
  }

 private:
  template <class, class>
  friend class tailored::ThreadFronts;
  struct NoFront {};
  using OwnFront = std::conditional_t<kCaching, NoFront, Front>;
  template <bool kLocks>
  struct Guard {
    explicit Guard(Lock& lock) noexcept : lock_{lock} {
      if constexpr (kLocks) lock_.lock();
    }
    ~Guard() {
      if constexpr (kLocks) lock_.unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    Lock& lock_;
  };
  // For the whole heap; for the engine behind magazines.
  using WholeGuard = Guard<kManyThreads>;
  using CoreGuard = Guard<kCaching>;
  static constexpr std::size_t kUnknown = Hardening::kUnknown;
  // The bytes for a block of `size` bytes.
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t room_for(std::size_t size) noexcept {
    return kHardened ? Hardening::room_for(size) : size;
  }

  // --- fast paths ----------------------------------------------------------------------

  // Null if the thread has last used another heap, or none.
  [[nodiscard]] ALLOD_INLINE Front* at_hand() noexcept {
    if constexpr (kCaching) {
      return Fronts::at_hand(*this);
    } else {
      return &front_;
    }
  }
  [[nodiscard]] Front* bound() noexcept {
    if constexpr (kCaching) {
      Front* const front = Fronts::at_hand(*this);
      return front != nullptr ? front : Fronts::bind(*this);
    } else {
      return &front_;
    }
  }
  [[nodiscard]] ALLOD_INLINE void* from_class(ClassIndex c, std::size_t size,
                                              const Where& where) noexcept {
    if constexpr (kWatched) {
      return take_watched(c, size, 1, where.file_name(), where.line());
    } else if constexpr (kClasses == 0) {
      return from_any(size, 1, where);
    } else if constexpr (kSharing == Sharing::central) {
      return take_locked(c, size);
    } else {
      Front* const front = at_hand();
      if (!kCaching || __builtin_expect(front != nullptr, 1)) {
        void* const block = front->magazines[c].pop();
        if (__builtin_expect(block != nullptr, 1)) return block;
      }
      return refill(c, size);
    }
  }
  ALLOD_INLINE void to_class(ClassIndex c, void* block) noexcept {
    if constexpr (kClasses == 0) {
      release_any(block);
    } else if constexpr (kSharing == Sharing::central) {
      give_locked(c, block);
    } else {
      Front* const front = at_hand();
      if (!kCaching || __builtin_expect(front != nullptr, 1)) {
        if (__builtin_expect(front->magazines[c].push(block), 1)) return;
      }
      flush(c, block);
    }
  }

  // --- slow paths ----------------------------------------------------------------------

  [[nodiscard]] ALLOD_NOINLINE void* take_locked(ClassIndex c, std::size_t size) noexcept {
    const WholeGuard guard{lock_};
    void* const block = front_.magazines[c].pop();
    return block != nullptr ? block : refill(c, size);
  }
  ALLOD_NOINLINE void give_locked(ClassIndex c, void* block) noexcept {
    const WholeGuard guard{lock_};
    if (!front_.magazines[c].push(block)) flush(c, block);
  }
  [[nodiscard]] ALLOD_NOINLINE void* refill(ClassIndex c, std::size_t size) noexcept {
    Front* const front = bound();
    const CoreGuard guard{lock_};
    core_.look_around();
    if (front == nullptr || core_.announces()) return take_one(c, size);
    heap::Magazine& magazine = front->magazines[c];
    if (void* const block = magazine.pop()) return block;
    if (magazine.capacity() == 0) {
      // Only after the first chunk it is known whether valgrind runs.
      void* const block = take_one(c, size);
      if (block != nullptr && !core_.announces()) front->open(c);
      return block;
    }
    const std::uint32_t count = core_.take(c, (magazine.capacity() + 1) / 2, magazine.bottom, this);
    magazine.top = magazine.bottom + count;
    return magazine.pop();
  }
  [[nodiscard]] void* take_one(ClassIndex c, std::size_t size) noexcept {
    void* block = nullptr;
    if (core_.take(c, 1, &block, this) == 0) return nullptr;
    if (core_.announces()) announce_block(block, size);
    return block;
  }
  // Frees the older half, so that the blocks freed last are used first.
  ALLOD_NOINLINE void flush(ClassIndex c, void* block) noexcept {
    Front* const front = bound();
    const CoreGuard guard{lock_};
    if (front == nullptr || core_.announces()) return give_one(c, block);
    heap::Magazine& magazine = front->magazines[c];
    if (magazine.capacity() == 0) front->open(c);
    if (magazine.push(block)) return;
    const std::uint32_t half = (magazine.capacity() + 1) / 2;
    core_.give(magazine.bottom, half);
    magazine.drop_oldest(half);
    if (!magazine.push(block)) core_.give(&block, 1);
  }
  void give_one(ClassIndex c, void* block) noexcept {
    if (core_.announces()) announce_freed(block, Sizes::size_of(c));
    core_.give(&block, 1);
  }
  [[nodiscard]] ALLOD_NOINLINE void* from_any(std::size_t size, std::size_t alignment,
                                              const Where& where) noexcept {
    if constexpr (!kServesAnySize) return nullptr;
    if constexpr (kWatched) {
      return take_watched(kClasses, size, alignment, where.file_name(), where.line());
    }
    const WholeGuard guard{lock_};
    void* const block = core_.take_any(size, alignment, this);
    if (block != nullptr && core_.announces()) announce_block(block, size);
    return block;
  }
  ALLOD_NOINLINE void release_any(void* block) noexcept {
    const WholeGuard guard{lock_};
    // A sized free of an aligned block comes here as well.
    if (const tailored::Content content = core_.content_of(block); content <= kClasses) {
      return give_one(content - 1U, block);
    }
    if (core_.announces()) announce_freed(block, core_.usable_size(block));
    core_.give_any(block);
  }
  // Those of the calling thread.
  void empty_magazines() noexcept {
    Front* front = at_hand();
    if constexpr (kCaching) front = front != nullptr ? front : Fronts::find(*this);
    if (front == nullptr) return;
    const WholeGuard guard{lock_};
    empty(*front);
  }
  void empty(Front& front) noexcept {
    for (heap::Magazine& magazine : front.magazines) {
      if (magazine.count() == 0) continue;
      core_.give(magazine.bottom, magazine.count());
      magazine.top = magazine.bottom;
    }
  }

  // --- the watched heap ----------------------------------------------------------------

  // Class kClasses: none.
  [[nodiscard]] ALLOD_NOINLINE void* take_watched(ClassIndex c, std::size_t size,
                                                  std::size_t alignment, const char* file,
                                                  std::uint32_t line) noexcept {
    const void* const caller = __builtin_return_address(0);
    if constexpr (kChecked) guardian_.check(Owner::name, kSharing == Sharing::one_thread);
    const WholeGuard guard{lock_};
    core_.look_around();
    void* const block = take_for(c, size, alignment);
    if (block != nullptr) observer_.allocated(block, size, Site{file, line, caller});
    return block;
  }
  [[nodiscard]] void* take_for(ClassIndex c, std::size_t size, std::size_t alignment) noexcept {
    if constexpr (kHardened) {
      if (!core_.announces()) {
        return hardening_.take(core_, *this, c, size, alignment, giver());
      }
    }
    if (c < kClasses) return take_one(c, size);
    void* const block = core_.take_any(size, alignment, this);
    if (block != nullptr && core_.announces()) announce_block(block, size);
    return block;
  }
  ALLOD_NOINLINE void release_watched(void* block, std::size_t size) noexcept {
    if constexpr (kChecked) guardian_.check(Owner::name, kSharing == Sharing::one_thread);
    const WholeGuard guard{lock_};
    if constexpr (kChecked) check_block(block, size);
    observer_.freed(block);
    if constexpr (kHardened) {
      if (!core_.announces()) return hardening_.detain(core_, *this, block, giver());
    }
    give_watched(block);
  }
  void give_watched(void* block) noexcept {
    const tailored::Content content = core_.content_of(block);
    if (content <= kClasses) return give_one(content - 1U, block);
    if (core_.announces()) announce_freed(block, core_.usable_size(block));
    core_.give_any(block);
  }
  // Frees a block that has waited.
  [[nodiscard]] auto giver() noexcept {
    return [this](void* block) noexcept { give_watched(block); };
  }
  // Ends the process if the block may not be freed here, now, or with this size.
  void check_block(const void* block, std::size_t size) noexcept {
    tailored::Guardian::check_block(core_.examine(block), Owner::name, block);
    if constexpr (kHardened) {
      if (!core_.announces()) return hardening_.check(core_, *this, block, size);
    }
    if (size == kUnknown) return;
    const std::size_t usable = core_.usable_size(block);
    if (size > usable || (usable <= Sizes::kLargest && size <= Sizes::kLargest &&
                          Sizes::of(size) > Sizes::of(usable))) {
      tailored::Guardian::fail("heap '%s': block %p of %zu bytes is freed as one of %zu",
                               Owner::name, block, usable, size);
    }
  }

  // --- fronts of threads; called by ThreadFronts ---------------------------------------

  [[nodiscard]] Front* begin_front() noexcept {
    const WholeGuard guard{lock_};
    Front* front = idle_;
    if (front != nullptr) {
      idle_ = front->next_idle;
      return front;
    }
    void* const memory = core_.take_records(sizeof(Front), this);
    return memory == nullptr ? nullptr : new (memory) Front;
  }
  void end_front(Front& front) noexcept {
    const WholeGuard guard{lock_};
    empty(front);
    front.next_idle = idle_;
    idle_ = &front;
  }

  void end() noexcept {
    if constexpr (kCaching) Fronts::forget(*this);
    idle_ = nullptr;
    if constexpr (kHardened) hardening_.end_waiting(core_, *this, giver());
    observer_.ended(Owner::name);
    core_.release_all();
  }

  // The functions of Owner.
  static void* allocate_of(Owner* owner, std::size_t size, std::size_t alignment) noexcept {
    auto* const heap = static_cast<ComposedHeap*>(owner);
    return alignment <= 8 ? heap->allocate(size) : heap->allocate_aligned(size, alignment);
  }
  static void release_of(Owner* owner, void* block) noexcept {
    static_cast<ComposedHeap*>(owner)->deallocate(block);
  }
  static std::size_t usable_size_of(Owner* owner, const void* block) noexcept {
    return static_cast<ComposedHeap*>(owner)->usable_size(block);
  }

  [[no_unique_address]] OwnFront front_;
  std::atomic<std::uint64_t> id{0};
  Front* idle_ = nullptr;
  [[no_unique_address]] Lock lock_;
  Core core_;
  [[no_unique_address]] Observer observer_;
  [[no_unique_address]] std::conditional_t<kChecked, tailored::Guardian, NoLock> guardian_;
  struct NoHardening {};
  [[no_unique_address]] std::conditional_t<kHardened, Hardening, NoHardening> hardening_;
};

}  // namespace allod
