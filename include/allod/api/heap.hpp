// Layer 8: a first-class heap as a C++ object. Programs that use it link one of the libraries.
#pragma once

#include <allod.h>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace allod {

namespace detail {
// Traps if exceptions are disabled.
[[noreturn]] inline void throw_bad_alloc() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc{};
#else
  __builtin_trap();
#endif
}
}  // namespace detail

// Owns a first-class heap. The destructor destroys the heap with all its blocks, unless detach()
// was called. Movable, not copyable. Thread-safe, except for moves and destruction. Allocation
// functions return null if the heap refuses.
class Heap {
 public:
  // Throw std::bad_alloc if memory is exhausted.
  Heap() : Heap{nullptr, 0} {}
  explicit Heap(const char* name, std::size_t byte_limit = 0) : Heap{options(name, byte_limit)} {}
  // Throws also for invalid options; see errno.
  explicit Heap(const allod_heap_options_t& options) : handle_{allod_heap_new_ex(&options)} {
    if (handle_ == nullptr) detail::throw_bad_alloc();
  }
  // Default options with a name and a limit, to be completed.
  [[nodiscard]] static allod_heap_options_t options(const char* name = nullptr,
                                                    std::size_t byte_limit = 0) noexcept {
    allod_heap_options_t options{};
    options.struct_size = sizeof options;
    options.name = name;
    options.byte_limit = byte_limit;
    return options;
  }
  Heap(Heap&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
  Heap& operator=(Heap&& other) noexcept {
    Heap old{std::move(other)};
    std::swap(handle_, old.handle_);
    return *this;
  }
  ~Heap() { allod_heap_destroy(handle_); }

  [[nodiscard]] void* allocate(std::size_t size) noexcept {
    return allod_heap_malloc(handle_, size);
  }
  // `alignment` must be a power of two.
  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (alignment <= alignof(std::max_align_t) && size >= alignment) return allocate(size);
    return allod_heap_aligned_alloc(handle_, alignment, size);
  }
  [[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t size) noexcept {
    return allod_heap_calloc(handle_, count, size);
  }
  [[nodiscard]] void* reallocate(void* block, std::size_t size) noexcept {
    return allod_heap_realloc(handle_, block, size);
  }
  // Frees a block of this heap, or null.
  void deallocate(void* block) noexcept { allod_heap_free(handle_, block); }
  [[nodiscard]] bool contains(const void* block) const noexcept {
    return allod_heap_contains(handle_, block) != 0;
  }

  // Calls visit(block, bytes) for each block in use until it returns false; see allod_heap_walk.
  // `visit` must not throw. Returns false if memory is exhausted.
  template <class Visit>
  bool walk(Visit&& visit) const noexcept {
    const auto tell = [](void* block, std::size_t bytes, void* visitor) -> int {
      return (*static_cast<std::remove_reference_t<Visit>*>(visitor))(block, bytes) ? 0 : 1;
    };
    const void* const context = std::addressof(visit);
    return allod_heap_walk(handle_, tell, const_cast<void*>(context)) >= 0;
  }
  [[nodiscard]] allod_heap_stats_t stats() const noexcept {
    allod_heap_stats_t stats{};
    allod_heap_stats_get(handle_, &stats, sizeof stats);
    return stats;
  }
  // Returns the bytes of the freed slabs.
  std::size_t collect() noexcept { return allod_heap_collect(handle_); }
  void set_limit(std::size_t bytes) noexcept { allod_heap_set_limit(handle_, bytes); }
  [[nodiscard]] const char* name() const noexcept { return allod_heap_name(handle_); }

  // Deletes the heap; its blocks stay valid and belong to the process. False, and nothing changed,
  // if it has blocks in memory of its own; see allod_heap_delete.
  bool detach() noexcept {
    if (allod_heap_delete(handle_) != 0) return false;
    handle_ = nullptr;
    return true;
  }
  // Null after a move or detach(); no other function may be called then.
  [[nodiscard]] allod_heap_t* handle() const noexcept { return handle_; }

 private:
  allod_heap_t* handle_ = nullptr;
};

}  // namespace allod
