// allod-replace.dll: stands in for the allocation functions of the C runtimes of a program that was
// not built with Allod. When it is loaded, it writes its own functions over the runtimes' in the
// import tables of all modules, and again whenever a module is loaded later.
//
// Blocks that a runtime gave before, or gives to code that calls it by other ways, go back to it:
// the page map tells them apart.
#include "windows/runtime.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
int allod_win_protect(void* address, std::size_t bytes, std::uint32_t protection,
                      std::uint32_t* before) noexcept __asm__("VirtualProtect");
int allod_win_modules(void* process, void** modules, std::uint32_t bytes,
                      std::uint32_t* needed) noexcept __asm__("K32EnumProcessModules");
int allod_win_hold(std::uint32_t flags, const void* address, void** module) noexcept
    __asm__("GetModuleHandleExW");
int allod_win_let_go(void* module) noexcept __asm__("FreeLibrary");
void* allod_win_load(const char* name) noexcept __asm__("LoadLibraryA");
void* allod_win_load_wide(const wchar_t* name) noexcept __asm__("LoadLibraryW");
void* allod_win_load_how(const char* name, void* file, std::uint32_t flags) noexcept
    __asm__("LoadLibraryExA");
void* allod_win_load_wide_how(const wchar_t* name, void* file, std::uint32_t flags) noexcept
    __asm__("LoadLibraryExW");
extern const char __ImageBase;
// NOLINTEND(readability-identifier-naming)
}

namespace allod::windows {

namespace {

struct Pair {
  void* theirs;
  void* ours;
};
constexpr std::size_t kMostPairs = 128;
// Filled when the library is loaded, under the loader's lock; unchanged since.
constinit Pair pairs[kMostPairs];
constinit std::size_t pair_count = 0;

template <class Function>
void stand_in(void* module, const char* name, Function* ours) noexcept {
  void* const theirs = allod_win_function(module, name);
  if (theirs == nullptr || pair_count == kMostPairs) return;
  pairs[pair_count++] = {theirs, reinterpret_cast<void*>(ours)};
}
[[nodiscard]] void* ours_for(void* theirs) noexcept {
  for (std::size_t i = 0; i < pair_count; ++i) {
    if (pairs[i].theirs == theirs) return pairs[i].ours;
  }
  return nullptr;
}

// The functions that stand in for those of one runtime.
template <int kRuntime>
struct InPlaceOf {
  static inline constinit RuntimeFunctions other{};

  static void* allocate(std::size_t size) noexcept { return Process::allocate<SetErrno>(size); }
  static void* zeroed(std::size_t count, std::size_t size) noexcept {
    return allocate_zeroed(count, size);
  }
  static void* resize(void* block, std::size_t size) noexcept {
    return reallocate(block, size, other.plain);
  }
  static void free(void* block) noexcept { release(block, other.plain); }
  static std::size_t size(void* block) noexcept { return usable_size(block, other.plain); }
  static void* grow(void* block, std::size_t size) noexcept { return expand(block, size, other); }
  static void* resize_zeroed(void* block, std::size_t count, std::size_t size) noexcept {
    return recalloc(block, count, size, other);
  }
  static void* aligned(std::size_t size, std::size_t alignment) noexcept {
    return aligned_malloc(size, alignment);
  }
  static void* resize_aligned(void* block, std::size_t size, std::size_t alignment) noexcept {
    return aligned_realloc(block, size, alignment, other);
  }
  static void free_aligned(void* block) noexcept { release(block, other.aligned); }

  static void begin(const char* name) noexcept {
    void* const module = allod_win_module(name);
    if (module == nullptr || other.plain.free != nullptr) return;
    other.find_in(module);
    for (const char* const like : {"malloc", "_malloc_base"}) stand_in(module, like, &allocate);
    for (const char* const like : {"calloc", "_calloc_base"}) stand_in(module, like, &zeroed);
    for (const char* const like : {"realloc", "_realloc_base"}) stand_in(module, like, &resize);
    for (const char* const like : {"free", "_free_base"}) stand_in(module, like, &free);
    for (const char* const like : {"_msize", "_msize_base"}) stand_in(module, like, &size);
    for (const char* const like : {"_expand", "_expand_base"}) stand_in(module, like, &grow);
    for (const char* const like : {"_recalloc", "_recalloc_base"}) {
      stand_in(module, like, &resize_zeroed);
    }
    stand_in(module, "_aligned_malloc", &aligned);
    stand_in(module, "_aligned_realloc", &resize_aligned);
    stand_in(module, "_aligned_free", &free_aligned);
  }
};

// --- import tables --------------------------------------------------------------------------

template <class T>
[[nodiscard]] const T& at(const void* module, std::size_t offset) noexcept {
  return *reinterpret_cast<const T*>(static_cast<const char*>(module) + offset);
}

struct ImportDescriptor {
  std::uint32_t names;
  std::uint32_t time;
  std::uint32_t forwarder;
  std::uint32_t module;
  std::uint32_t addresses;
};

void write_over(void** place, void* function) noexcept {
  std::uint32_t before = 0;
  if (allod_win_protect(place, sizeof *place, os::kWinReadWrite, &before) == 0) return;
  __atomic_store_n(place, function, __ATOMIC_RELEASE);
  allod_win_protect(place, sizeof *place, before, &before);
}

// Those of the loader call each other through their import tables, so that the functions that stand
// in would come back to themselves.
constexpr const char* kLoaders[] = {"kernel32.dll", "kernelbase.dll"};

[[nodiscard]] bool is_loaders(const void* module) noexcept {
  for (const char* const name : kLoaders) {
    if (module == allod_win_module(name)) return true;
  }
  return false;
}

// A module of 64 bits, whose imports are bound.
void replace_in(const void* module) noexcept {
  constexpr std::uint16_t kMagic = 0x5a4d;
  constexpr std::uint16_t k64Bits = 0x20b;
  if (module == &__ImageBase || is_loaders(module) || at<std::uint16_t>(module, 0) != kMagic)
    return;
  const std::size_t headers = at<std::uint32_t>(module, 0x3c);
  if (at<std::uint16_t>(module, headers + 24) != k64Bits) return;
  const std::size_t imports = at<std::uint32_t>(module, headers + 24 + 120);
  if (imports == 0) return;
  for (const auto* from = &at<ImportDescriptor>(module, imports); from->addresses != 0; ++from) {
    auto** place = const_cast<void**>(&at<void*>(module, from->addresses));
    for (; *place != nullptr; ++place) {
      if (void* const ours = ours_for(*place)) write_over(place, ours);
    }
  }
}

void replace_everywhere() noexcept {
  constexpr std::uint32_t kByAddress = 4;
  constexpr std::size_t kMost = 1024;
  const os::LastError kept;
  static void* modules[kMost];
  static constinit RankedLock<os::Native, false> lock{LockRank::records};
  LockGuard guard{lock};
  std::uint32_t needed = 0;
  if (allod_win_modules(os::own_process(), modules, sizeof modules, &needed) == 0) return;
  const std::size_t count = needed / sizeof(void*) < kMost ? needed / sizeof(void*) : kMost;
  for (std::size_t i = 0; i < count; ++i) {
    // Another thread may be unloading it.
    void* held = nullptr;
    if (allod_win_hold(kByAddress, modules[i], &held) == 0) continue;
    replace_in(held);
    allod_win_let_go(held);
  }
}

void* seen(void* module) noexcept {
  if (module != nullptr) replace_everywhere();
  return module;
}
void* load(const char* name) noexcept { return seen(allod_win_load(name)); }
void* load_wide(const wchar_t* name) noexcept { return seen(allod_win_load_wide(name)); }
void* load_how(const char* name, void* file, std::uint32_t flags) noexcept {
  return seen(allod_win_load_how(name, file, flags));
}
void* load_wide_how(const wchar_t* name, void* file, std::uint32_t flags) noexcept {
  return seen(allod_win_load_wide_how(name, file, flags));
}
void* find(void* module, const char* name) noexcept {
  void* const theirs = allod_win_function(module, name);
  if (theirs == nullptr) return nullptr;
  void* const ours = ours_for(theirs);
  return ours != nullptr ? ours : theirs;
}

// Runtimes that are loaded later are not replaced.
void begin() noexcept {
  InPlaceOf<0>::begin("ucrtbase.dll");
  InPlaceOf<1>::begin("msvcrt.dll");
  InPlaceOf<2>::begin("msvcr120.dll");
  InPlaceOf<3>::begin("msvcr110.dll");
  InPlaceOf<4>::begin("msvcr100.dll");
  for (const char* const name : kLoaders) {
    void* const module = allod_win_module(name);
    if (module == nullptr) continue;
    stand_in(module, "LoadLibraryA", &load);
    stand_in(module, "LoadLibraryW", &load_wide);
    stand_in(module, "LoadLibraryExA", &load_how);
    stand_in(module, "LoadLibraryExW", &load_wide_how);
    stand_in(module, "GetProcAddress", &find);
  }
  replace_everywhere();
}

void notice_begin(void*, std::uint32_t reason, void*) noexcept {
  constexpr std::uint32_t kProcessBegins = 1;
  if (reason == kProcessBegins) begin();
}

[[gnu::section(".CRT$XLYB"), gnu::used]] void (*const at_begin)(void*, std::uint32_t,
                                                                void*) noexcept = &notice_begin;

}  // namespace

}  // namespace allod::windows
