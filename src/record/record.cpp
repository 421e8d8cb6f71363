// The recorded functions. Each calls the next allocator's function of the same name, and records
// the result. The operators call the next allocator's malloc.
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <new>

#include "libc/operators.hpp"
#include "record/writer.hpp"
#include "text/text.hpp"

#define ALLOD_EXPORT extern "C" [[gnu::visibility("default")]]
#define ALLOD_EXPORT_CXX [[gnu::visibility("default")]]

using allod::record::kByOperator;
using allod::record::Kind;
using allod::record::Recorder;
using allod::record::Thread;
using std::align_val_t;
using std::nothrow_t;
using namespace allod::operators;

namespace {

// Serves allocations of the loader while we search for the next allocator. Its memory is never
// freed.
class EarlyMemory {
 public:
  void* allocate(std::size_t size, std::size_t alignment) noexcept {
    // The size precedes the block, for realloc.
    const std::size_t at = allod::align_up(used_ + kHead, alignment < kHead ? kHead : alignment);
    if (size > sizeof bytes_ || at > sizeof bytes_ - size) {
      errno = ENOMEM;
      return nullptr;
    }
    memcpy(bytes_ + at - sizeof size, &size, sizeof size);
    used_ = at + size;
    return bytes_ + at;
  }
  bool owns(const void* block) const noexcept {
    return reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(bytes_) <
           sizeof bytes_;
  }
  static std::size_t size_of(const void* block) noexcept {
    std::size_t size;
    memcpy(&size, static_cast<const char*>(block) - sizeof size, sizeof size);
    return size;
  }

 private:
  static constexpr std::size_t kHead = 16;

  std::size_t used_ = 0;
  alignas(64) char bytes_[32 * 1024] = {};
};
constinit EarlyMemory early_memory;

// The next allocator. Initially, each entry is a function that searches for all of them.
struct Next {
  void* (*malloc)(std::size_t);
  void* (*calloc)(std::size_t, std::size_t);
  void* (*realloc)(void*, std::size_t);
  void* (*memalign)(std::size_t, std::size_t);
  void* (*aligned_alloc)(std::size_t, std::size_t);
  int (*posix_memalign)(void**, std::size_t, std::size_t);
  void* (*valloc)(std::size_t);
  void (*free)(void*);
};
extern Next next;

thread_local constinit bool searching = false;
bool is_found = false;

template <class Function>
void find(Function*& function, const char* name) noexcept {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    {
      allod::Message{} << "error: the allocator behind the recorder has no " << name;
    }
    _exit(127);
  }
  function = reinterpret_cast<Function*>(found);
}

// Concurrent searches find the same functions.
[[gnu::cold]] void search() noexcept {
  searching = true;
  Next found{};
  find(found.malloc, "malloc");
  find(found.calloc, "calloc");
  find(found.realloc, "realloc");
  find(found.memalign, "memalign");
  find(found.aligned_alloc, "aligned_alloc");
  find(found.posix_memalign, "posix_memalign");
  find(found.valloc, "valloc");
  find(found.free, "free");
  next = found;
  is_found = true;
  searching = false;
}

constinit Next next = {
    .malloc = [](std::size_t size) -> void* {
      if (searching) return early_memory.allocate(size, 1);
      search();
      return next.malloc(size);
    },
    .calloc = [](std::size_t count, std::size_t size) -> void* {
      if (searching) return early_memory.allocate(count * size, 1);
      search();
      return next.calloc(count, size);
    },
    .realloc = [](void* block, std::size_t size) -> void* {
      if (searching && block == nullptr) return early_memory.allocate(size, 1);
      search();
      return next.realloc(block, size);
    },
    .memalign = [](std::size_t alignment, std::size_t size) -> void* {
      if (searching) return early_memory.allocate(size, alignment);
      search();
      return next.memalign(alignment, size);
    },
    .aligned_alloc = [](std::size_t alignment, std::size_t size) -> void* {
      search();
      return next.aligned_alloc(alignment, size);
    },
    .posix_memalign = [](void** block, std::size_t alignment, std::size_t size) -> int {
      search();
      return next.posix_memalign(block, alignment, size);
    },
    .valloc = [](std::size_t size) -> void* {
      search();
      return next.valloc(size);
    },
    .free =
        [](void* block) {
          search();
          next.free(block);
        },
};

template <Kind kKind, class Allocate>
[[nodiscard]] ALLOD_INLINE void* recorded(std::size_t size, Allocate allocate) noexcept {
  Thread* const thread = Recorder::enter();
  if (thread == nullptr) [[unlikely]]
    return allocate();
  void* const block = allocate();
  thread->add(kKind, thread->time(), block, size);
  Recorder::leave(thread);
  return block;
}

template <class Allocate>
[[nodiscard]] void* recorded_aligned(std::size_t alignment, std::size_t size, std::uint8_t origin,
                                     Allocate allocate) noexcept {
  Thread* const thread = Recorder::enter();
  if (thread == nullptr) return allocate();
  void* const block = allocate();
  const int power = alignment == 0 ? 0 : 63 - __builtin_clzll(alignment);
  thread->add_aligned(thread->time(), block, size, static_cast<std::uint8_t>(power | origin));
  Recorder::leave(thread);
  return block;
}

template <Kind kKind>
ALLOD_INLINE void release(void* block) noexcept {
  if (block == nullptr || early_memory.owns(block)) return;
  Thread* const thread = Recorder::enter();
  if (thread == nullptr) [[unlikely]]
    return next.free(block);
  thread->add(kKind, thread->time(), block);
  next.free(block);
  Recorder::leave(thread);
}

void* reallocate(void* block, std::size_t size) noexcept {
  if (early_memory.owns(block)) [[unlikely]] {
    void* const moved = malloc(size);
    const std::size_t old = EarlyMemory::size_of(block);
    return moved == nullptr ? nullptr : memcpy(moved, block, old < size ? old : size);
  }
  Thread* const thread = Recorder::enter();
  if (thread == nullptr) return next.realloc(block, size);
  const std::uint64_t before = thread->time();
  void* const moved = next.realloc(block, size);
  thread->add_realloc(before, thread->time(), block, moved, size);
  Recorder::leave(thread);
  return moved;
}

std::size_t page_bytes() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// The C++ runtime's operator, which calls the new-handler and throws. It starts with malloc, which
// is ours. Null without a runtime.
template <class Operator>
[[gnu::cold]] Operator* runtime_operator(const char* name) noexcept {
  for (const char* library : {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"}) {
    void* const runtime = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void* const found = runtime == nullptr ? nullptr : dlsym(runtime, name);
    if (found != nullptr) return reinterpret_cast<Operator*>(found);
  }
  return nullptr;
}

template <class Operator, class... Arguments>
[[gnu::cold, gnu::noinline]] void* new_by_runtime(const char* name, Arguments... arguments) {
  if (auto* const found = runtime_operator<Operator>(name)) return found(arguments...);
  {
    allod::Message{}
        << "error: operator new: out of memory, and no C++ runtime to throw std::bad_alloc";
  }
  _exit(127);
}

[[nodiscard]] ALLOD_INLINE void* new_block(std::size_t size) noexcept {
  return recorded<Kind::new_block>(size, [=] { return next.malloc(size); });
}
[[nodiscard]] void* new_block(std::size_t size, align_val_t alignment) noexcept {
  const auto bytes = static_cast<std::size_t>(alignment);
  return recorded_aligned(bytes, size, kByOperator, [=] { return next.memalign(bytes, size); });
}

void* new_or_throw(std::size_t size) {
  void* const block = new_block(size);
  if (block != nullptr) [[likely]]
    return block;
  return new_by_runtime<void*(std::size_t)>("_Znwm", size);
}
void* new_or_throw(std::size_t size, align_val_t alignment) {
  void* const block = new_block(size, alignment);
  if (block != nullptr) return block;
  return new_by_runtime<void*(std::size_t, align_val_t)>("_ZnwmSt11align_val_t", size, alignment);
}
// The runtime's nothrow form calls the throwing one, even a replaced one, and catches.
[[gnu::cold, gnu::noinline]] void* null_by_runtime(const char* name, std::size_t size) noexcept {
  const auto form = runtime_operator<void*(std::size_t, const nothrow_t&)>(name);
  return form == nullptr ? nullptr : form(size, nothrow_t{});
}
[[gnu::cold, gnu::noinline]] void* null_by_runtime(const char* name, std::size_t size,
                                                   align_val_t alignment) noexcept {
  const auto form = runtime_operator<void*(std::size_t, align_val_t, const nothrow_t&)>(name);
  return form == nullptr ? nullptr : form(size, alignment, nothrow_t{});
}
// `MadeOf` are the forms that the form `name` calls.
template <class... MadeOf, class... Alignment>
void* new_or_null(const char* name, std::size_t size, Alignment... alignment) noexcept {
  if (!are_replaced<MadeOf...>()) {
    if (void* const block = new_block(size, alignment...)) return block;
  }
  return null_by_runtime(name, size, alignment...);
}

// A replaced form is recorded where it calls malloc and free.
template <class First, class... Rest, class... Alignment>
void release_by(void* block, Alignment... alignment) noexcept {
  if (are_replaced<First, Rest...>()) return First::in_force()(block, alignment...);
  release<Kind::delete_block>(block);
}

}  // namespace

namespace allod::record {

const char* allocator_path() noexcept {
  if (!is_found) search();
  Dl_info info{};
  const bool known = dladdr(reinterpret_cast<void*>(next.malloc), &info) != 0;
  return known && info.dli_fname != nullptr ? info.dli_fname : "unknown";
}

}  // namespace allod::record

// C23's sized frees, and glibc's cfree.
extern "C" {
void cfree(void*) noexcept;
void free_sized(void*, size_t) noexcept;
void free_aligned_sized(void*, size_t, size_t) noexcept;
}

ALLOD_EXPORT void* malloc(size_t size) noexcept {
  return recorded<Kind::malloc>(size, [=] { return next.malloc(size); });
}
ALLOD_EXPORT void* calloc(size_t count, size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  return recorded<Kind::calloc>(bytes, [=] { return next.calloc(count, size); });
}
ALLOD_EXPORT void* realloc(void* block, size_t size) noexcept { return reallocate(block, size); }
ALLOD_EXPORT void* reallocarray(void* block, size_t count, size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return reallocate(block, bytes);
}
ALLOD_EXPORT void* memalign(size_t alignment, size_t size) noexcept {
  return recorded_aligned(alignment, size, 0, [=] { return next.memalign(alignment, size); });
}
ALLOD_EXPORT void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return recorded_aligned(alignment, size, 0, [=] { return next.aligned_alloc(alignment, size); });
}
ALLOD_EXPORT int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  int error = 0;
  void* const made = recorded_aligned(alignment, size, 0, [&error, alignment, size] {
    void* result = nullptr;
    error = next.posix_memalign(&result, alignment, size);
    return error == 0 ? result : nullptr;
  });
  if (error == 0) *block = made;
  return error;
}
ALLOD_EXPORT void* valloc(size_t size) noexcept {
  return recorded_aligned(page_bytes(), size, 0, [=] { return next.valloc(size); });
}
ALLOD_EXPORT void* pvalloc(size_t size) noexcept {
  const std::size_t page = page_bytes();
  const std::size_t pages = size > SIZE_MAX - page ? SIZE_MAX : allod::align_up(size, page);
  // Some C libraries lack pvalloc.
  return recorded_aligned(page, pages, 0, [=] { return next.valloc(pages); });
}
ALLOD_EXPORT void free(void* block) noexcept { release<Kind::free>(block); }
ALLOD_EXPORT void cfree(void* block) noexcept { release<Kind::free>(block); }
ALLOD_EXPORT void free_sized(void* block, size_t) noexcept { release<Kind::free>(block); }
ALLOD_EXPORT void free_aligned_sized(void* block, size_t, size_t) noexcept {
  release<Kind::free>(block);
}

ALLOD_EXPORT_CXX void* operator new(std::size_t size) { return new_or_throw(size); }
ALLOD_EXPORT_CXX void* operator new[](std::size_t size) {
  if (are_replaced<New>()) return New::in_force()(size);
  return new_or_throw(size);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, const nothrow_t&) noexcept {
  return new_or_null<New>("_ZnwmRKSt9nothrow_t", size);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, const nothrow_t&) noexcept {
  return new_or_null<NewArray, New>("_ZnamRKSt9nothrow_t", size);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, align_val_t alignment) {
  return new_or_throw(size, alignment);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, align_val_t alignment) {
  if (are_replaced<NewAligned>()) return NewAligned::in_force()(size, alignment);
  return new_or_throw(size, alignment);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, align_val_t alignment,
                                    const nothrow_t&) noexcept {
  return new_or_null<NewAligned>("_ZnwmSt11align_val_tRKSt9nothrow_t", size, alignment);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, align_val_t alignment,
                                      const nothrow_t&) noexcept {
  return new_or_null<NewArrayAligned, NewAligned>("_ZnamSt11align_val_tRKSt9nothrow_t", size,
                                                  alignment);
}

ALLOD_EXPORT_CXX void operator delete(void* block) noexcept { release<Kind::delete_block>(block); }
ALLOD_EXPORT_CXX void operator delete[](void* block) noexcept { release_by<Delete>(block); }
ALLOD_EXPORT_CXX void operator delete(void* block, const nothrow_t&) noexcept {
  release_by<Delete>(block);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, const nothrow_t&) noexcept {
  release_by<DeleteArray, Delete>(block);
}
ALLOD_EXPORT_CXX void operator delete(void* block, std::size_t) noexcept {
  release_by<Delete>(block);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, std::size_t) noexcept {
  release_by<DeleteArray, Delete>(block);
}
ALLOD_EXPORT_CXX void operator delete(void* block, align_val_t) noexcept {
  release<Kind::delete_block>(block);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, align_val_t alignment) noexcept {
  release_by<DeleteAligned>(block, alignment);
}
ALLOD_EXPORT_CXX void operator delete(void* block, align_val_t alignment,
                                      const nothrow_t&) noexcept {
  release_by<DeleteAligned>(block, alignment);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, align_val_t alignment,
                                        const nothrow_t&) noexcept {
  release_by<DeleteArrayAligned, DeleteAligned>(block, alignment);
}
ALLOD_EXPORT_CXX void operator delete(void* block, std::size_t, align_val_t alignment) noexcept {
  release_by<DeleteAligned>(block, alignment);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, std::size_t, align_val_t alignment) noexcept {
  release_by<DeleteArrayAligned, DeleteAligned>(block, alignment);
}
