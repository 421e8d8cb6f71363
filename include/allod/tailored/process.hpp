// A tailored heap as the heap of a process, behind operator new and delete, or malloc; and a heap
// that one thread uses in its place.
#pragma once

#include <errno.h>
#include <pthread.h>

#include <new>

#include "allod/os/posix/at_fork.hpp"
#include "allod/tailored/heap.hpp"
#include "allod/tailored/std.hpp"

namespace allod {

namespace tailored {

// The heap for operator new on this thread; null: that of the process. malloc does not use it,
// since libc keeps its allocations for one thread for later ones.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Owner* injected_heap = nullptr;

// Never destroyed: the last blocks of a program are freed after its last destructors.
template <class Heap>
union Undying {
  constexpr Undying() noexcept : heap{"process"} {}
  ~Undying() {}
  Heap heap;
};

// The functions behind operator new and libc's. The chunk of a block leads to its heap, whichever
// thread frees it.
template <class Heap>
class ProcessHeap {
  static_assert(Heap::kServesAnySize, "the heap of a process needs Storage = allod::AnySize<>");
  static_assert(Heap::kManyThreads,
                "the heap of a process needs Threads = allod::ThreadCaching<> or allod::Central<>");
  static_assert(Heap::kChunkBytes != 0, "the heap of a process cannot live in a UserBuffer");
  static_assert(Heap::kAligns,
                "the size classes of the heap of a process are multiples of 16 bytes");

 public:
  [[nodiscard]] static ALLOD_INLINE Heap& heap() noexcept { return instance_.heap; }

  [[nodiscard]] static ALLOD_INLINE void* allocate(std::size_t size) noexcept {
    return heap().allocate(size);
  }
  [[nodiscard]] static void* allocate_aligned(std::size_t size, std::size_t alignment) noexcept {
    return heap().allocate_aligned(size, alignment);
  }
  static ALLOD_INLINE void release(void* block) noexcept {
    if (__builtin_expect(block == nullptr, 0)) return;
    Owner* const owner = heap().chunk_of(block)->owner;
    if (__builtin_expect(owner != heap().owner(), 0)) return owner->release(owner, block);
    heap().deallocate(block);
  }
  [[nodiscard]] static std::size_t usable_size(const void* block) noexcept {
    if (block == nullptr) return 0;
    Owner* const owner = heap().chunk_of(block)->owner;
    return owner->usable_size(owner, block);
  }
  [[nodiscard]] static void* reallocate(void* block, std::size_t size) noexcept {
    if (block == nullptr) return allocate(size);
    if (heap().chunk_of(block)->owner == heap().owner()) return heap().reallocate(block, size);
    const std::size_t before = usable_size(block);
    void* const moved = allocate(size);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, block, size < before ? size : before);
    release(block);
    return moved;
  }

  // With the new-handler loop.
  [[nodiscard]] static ALLOD_INLINE void* make(std::size_t size) {
    if (__builtin_expect(injected_heap == nullptr, 1)) {
      void* const block = allocate(size);
      if (__builtin_expect(block != nullptr, 1)) return block;
    }
    return make_slowly(size, 1);
  }
  [[nodiscard]] static void* make_aligned(std::size_t size, std::align_val_t alignment) {
    return make_slowly(size, static_cast<std::size_t>(alignment));
  }
  // Null where make() throws.
  [[nodiscard]] static void* make_or_null(std::size_t size, std::size_t alignment) noexcept {
#ifdef __cpp_exceptions
    try {
      return make_slowly(size, alignment);
    } catch (...) {
      return nullptr;
    }
#else
    return attempt(size, alignment);
#endif
  }

  // The child of a fork goes on with the forking thread.
  static void watch_forks() noexcept {
    os::at_fork([] { heap().lock_for_fork(); }, [] { heap().unlock_in_parent(); },
                [] { heap().reset_in_child(); });
  }

 private:
  // Sizes without a class in the thread's own heap go to that of the process.
  [[nodiscard]] static void* attempt(std::size_t size, std::size_t alignment) noexcept {
    if (injected_heap != nullptr) {
      if (void* const block = allocate_injected(size, alignment)) return block;
    }
    return alignment > 16 ? allocate_aligned(size, alignment) : allocate(size);
  }
  [[nodiscard]] static void* allocate_injected(std::size_t size, std::size_t alignment) noexcept {
    Owner* const owner = injected_heap;
    if (owner->chunk_bytes != Heap::kChunkBytes) {
      Guardian::fail("heap '%s' has chunks of %zu bytes, and the heap of the process of %zu",
                     owner->name, owner->chunk_bytes, Heap::kChunkBytes);
    }
    return owner->allocate(owner, size, alignment < 16 ? 16 : alignment);
  }
  [[nodiscard]] static ALLOD_NOINLINE void* make_slowly(std::size_t size, std::size_t alignment) {
    for (;;) {
      if (void* const block = attempt(size, alignment)) return block;
      const std::new_handler handler = std::get_new_handler();
      if (handler == nullptr) throw_bad_alloc();
      handler();
    }
  }

  static inline constinit Undying<Heap> instance_;
};

// malloc and related functions.
template <class Heap>
class CSurface {
  using Process = ProcessHeap<Heap>;

 public:
  [[nodiscard]] static ALLOD_INLINE void* malloc(std::size_t size) noexcept {
    return checked(Process::allocate(size));
  }
  [[nodiscard]] static void* calloc(std::size_t count, std::size_t size) noexcept {
    std::size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return checked(nullptr);
    void* const block = malloc(bytes);
    return block == nullptr ? nullptr : std::memset(block, 0, bytes);
  }
  [[nodiscard]] static void* realloc(void* block, std::size_t size) noexcept {
    if (block != nullptr && size == 0) {
      Process::release(block);
      return nullptr;
    }
    return checked(Process::reallocate(block, size));
  }
  [[nodiscard]] static void* reallocarray(void* block, std::size_t count,
                                          std::size_t size) noexcept {
    std::size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return checked(nullptr);
    return realloc(block, bytes);
  }
  [[nodiscard]] static void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    if (is_power_of_two(alignment)) return checked(Process::allocate_aligned(size, alignment));
    errno = EINVAL;
    return nullptr;
  }
  [[nodiscard]] static int posix_memalign(void** out, std::size_t alignment,
                                          std::size_t size) noexcept {
    if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
    void* const block = Process::allocate_aligned(size, alignment);
    if (block == nullptr) return ENOMEM;
    *out = block;
    return 0;
  }
  [[nodiscard]] static std::size_t page_bytes() noexcept {
    const long bytes = ::sysconf(_SC_PAGESIZE);
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 4096;
  }

 private:
  [[nodiscard]] static ALLOD_INLINE void* checked(void* block) noexcept {
    if (__builtin_expect(block == nullptr, 0)) errno = ENOMEM;
    return block;
  }
};

}  // namespace tailored

// A heap of its own for the calling thread during the scope: operator new uses it for the sizes of
// its classes, malloc does not. Scopes may be nested. The end of the scope frees all its blocks,
// which must not be used any more. Blocks of a heap for OneThread must be freed by this thread.
template <class Heap>
class ThreadScope {
  static_assert(Heap::kChunkBytes != 0, "a ThreadScope cannot live in a UserBuffer");

 public:
  template <class... A>
  explicit ThreadScope(const char* name = "thread", A&&... pages) noexcept
      : heap_{name, static_cast<A&&>(pages)...} {
    if constexpr (requires { heap_.owner(); }) {
      outer_ = tailored::injected_heap;
      tailored::injected_heap = heap_.owner();
    }
  }
  ~ThreadScope() {
    if constexpr (requires { heap_.owner(); }) tailored::injected_heap = outer_;
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  [[nodiscard]] Heap& heap() noexcept { return heap_; }

 private:
  Heap heap_;
  tailored::Owner* outer_ = nullptr;
};

}  // namespace allod

// At namespace scope of exactly one source file: makes HEAP, a type, the heap behind operator new
// and delete. With ALLOD_USE_SYSTEM_MALLOC, it replaces nothing.
#ifdef ALLOD_USE_SYSTEM_MALLOC
#define ALLOD_REPLACE_NEW(...) static_assert(true)
#define ALLOD_REPLACE_MALLOC(...) static_assert(true)
#else
// NOLINTBEGIN
#define ALLOD_REPLACE_NEW(...)                                                                  \
  using AllodProcess = allod::tailored::ProcessHeap<__VA_ARGS__>;                               \
  [[gnu::constructor(102)]] static void allod_watch_forks() { AllodProcess::watch_forks(); }    \
  void* operator new(std::size_t n) { return AllodProcess::make(n); }                           \
  void* operator new[](std::size_t n) { return AllodProcess::make(n); }                         \
  void* operator new(std::size_t n, const std::nothrow_t&) noexcept {                           \
    return AllodProcess::make_or_null(n, 1);                                                    \
  }                                                                                             \
  void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {                         \
    return AllodProcess::make_or_null(n, 1);                                                    \
  }                                                                                             \
  void* operator new(std::size_t n, std::align_val_t a) {                                       \
    return AllodProcess::make_aligned(n, a);                                                    \
  }                                                                                             \
  void* operator new[](std::size_t n, std::align_val_t a) {                                     \
    return AllodProcess::make_aligned(n, a);                                                    \
  }                                                                                             \
  void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {       \
    return AllodProcess::make_or_null(n, static_cast<std::size_t>(a));                          \
  }                                                                                             \
  void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {     \
    return AllodProcess::make_or_null(n, static_cast<std::size_t>(a));                          \
  }                                                                                             \
  void operator delete(void* p) noexcept { AllodProcess::release(p); }                          \
  void operator delete[](void* p) noexcept { AllodProcess::release(p); }                        \
  void operator delete(void* p, const std::nothrow_t&) noexcept { AllodProcess::release(p); }   \
  void operator delete[](void* p, const std::nothrow_t&) noexcept { AllodProcess::release(p); } \
  void operator delete(void* p, std::size_t) noexcept { AllodProcess::release(p); }             \
  void operator delete[](void* p, std::size_t) noexcept { AllodProcess::release(p); }           \
  void operator delete(void* p, std::align_val_t) noexcept { AllodProcess::release(p); }        \
  void operator delete[](void* p, std::align_val_t) noexcept { AllodProcess::release(p); }      \
  void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {             \
    AllodProcess::release(p);                                                                   \
  }                                                                                             \
  void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {           \
    AllodProcess::release(p);                                                                   \
  }                                                                                             \
  void operator delete(void* p, std::size_t, std::align_val_t) noexcept {                       \
    AllodProcess::release(p);                                                                   \
  }                                                                                             \
  void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {                     \
    AllodProcess::release(p);                                                                   \
  }                                                                                             \
  static_assert(true)

// The same for malloc and all related functions, and operator new and delete: in a program, or in a
// library to be preloaded.
#define ALLOD_REPLACE_MALLOC(...)                                                                 \
  ALLOD_REPLACE_NEW(__VA_ARGS__);                                                                 \
  using AllodC = allod::tailored::CSurface<__VA_ARGS__>;                                          \
  extern "C" {                                                                                    \
  void* malloc(std::size_t n) noexcept { return AllodC::malloc(n); }                              \
  void free(void* p) noexcept { AllodProcess::release(p); }                                       \
  void* calloc(std::size_t k, std::size_t n) noexcept { return AllodC::calloc(k, n); }            \
  void* realloc(void* p, std::size_t n) noexcept { return AllodC::realloc(p, n); }                \
  void* reallocarray(void* p, std::size_t k, std::size_t n) noexcept {                            \
    return AllodC::reallocarray(p, k, n);                                                         \
  }                                                                                               \
  void* memalign(std::size_t a, std::size_t n) noexcept { return AllodC::aligned_alloc(a, n); }   \
  void* aligned_alloc(std::size_t a, std::size_t n) noexcept {                                    \
    return AllodC::aligned_alloc(a, n);                                                           \
  }                                                                                               \
  int posix_memalign(void** p, std::size_t a, std::size_t n) noexcept {                           \
    return AllodC::posix_memalign(p, a, n);                                                       \
  }                                                                                               \
  void* valloc(std::size_t n) noexcept { return AllodC::aligned_alloc(AllodC::page_bytes(), n); } \
  void* pvalloc(std::size_t n) noexcept {                                                         \
    const std::size_t page = AllodC::page_bytes();                                                \
    return AllodC::aligned_alloc(page, (n + page - 1) & ~(page - 1));                             \
  }                                                                                               \
  std::size_t malloc_usable_size(void* p) noexcept { return AllodProcess::usable_size(p); }       \
  void free_sized(void* p, std::size_t) noexcept { AllodProcess::release(p); }                    \
  void free_aligned_sized(void* p, std::size_t, std::size_t) noexcept {                           \
    AllodProcess::release(p);                                                                     \
  }                                                                                               \
  }                                                                                               \
  static_assert(true)
// NOLINTEND
#endif
