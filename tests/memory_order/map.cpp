// Spans that come and go, and what other threads find of them in the page map.
#include <sys/mman.h>

#include <atomic>
#include <optional>

#include "world.hpp"

namespace order::map {
namespace {

constexpr std::size_t kSmall = 4096;
constexpr std::size_t kHuge = std::size_t{2} << 20;  // above all classes, and a region's size
World world;
World::Domain* domains[kThreads];
std::atomic<void*> passed;

void begin() {
  world.begin();
  passed = nullptr;
  for (unsigned i = 1; i <= 2; ++i) domains[i] = &world.attach();
}
void end() { world.end(); }
void check() {
  for (unsigned i = 1; i <= 2; ++i) world.heap().detach(*domains[i]);
  world.heap().check_invariants();
}
void pass(std::size_t size) {
  passed.store(world.allocate(*domains[1], size), std::memory_order_release);
}
// The program orders what it does with a block, as with all memory.
void free_passed() {
  if (void* const block = passed.load(std::memory_order_acquire)) {
    require(world.heap().usable_size(block) >= kSmall, "a block without a size");
    world.release(*domains[2], block);
  }
}

// --- a map that is narrowed -------------------------------------------------------

// Pages so large that the map has few parts. Each mapping is a real one.
class LargePages : public allod::os::Fake {
 public:
  [[nodiscard]] static std::size_t page_size() noexcept { return std::size_t{16} << 20; }
  [[nodiscard]] static std::size_t address_space_limit() noexcept { return 0; }
  [[nodiscard]] static void* reserve(std::size_t, std::size_t) noexcept { return nullptr; }
  [[nodiscard]] static void* reserve_zeros(std::size_t bytes) noexcept { return map(bytes); }
  [[nodiscard]] static void* map(std::size_t bytes) noexcept {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mapped.emplace_back(memory, bytes);
    return memory;
  }
  static void unmap_all() noexcept {
    for (const auto& [memory, bytes] : mapped) ::munmap(memory, bytes);
    mapped.clear();
  }
  // What is unmapped must not be read any more.
  static void unmap(void* address, std::size_t bytes) noexcept {
    allod::always_check(::mprotect(address, bytes, PROT_NONE) == 0, "mprotect");
  }
  [[nodiscard]] static bool commit(void*, std::size_t) noexcept { return true; }
  static void name(void*, std::size_t, const char*) noexcept {}
  static void dump(void*, std::size_t, bool) noexcept {}

 private:
  static inline std::vector<std::pair<void*, std::size_t>> mapped;
};

using allod::Address;
using allod::space::PageMap;
using allod::space::Span;
std::optional<LargePages> pages;
alignas(64) unsigned char map_place[sizeof(PageMap)];
PageMap* map;
Span* const kSpan = reinterpret_cast<Span*>(std::uintptr_t{64});
constexpr Address kBlock = Address{1} << 40;
constexpr allod::space::Tag kTag = allod::space::make_tag(2, 3);

void begin_map() {
  pages.emplace();
  map = new (map_place) PageMap;
  watch(map_place, sizeof map_place);
  require(map->start(*pages) && map->cover(*pages, kBlock, allod::kSliceBytes), "no map");
  map->set_span(kBlock, kSpan);
  map->set_tags(kBlock, allod::Slices{1}, kTag);
}
void end_map() {
  map->~PageMap();
  LargePages::unmap_all();
  pages.reset();
}
void narrow() {
  constexpr std::size_t kLimit = std::size_t{1} << 30;
  map->narrow(
      *pages, kLimit, false,
      [](auto&& keep) noexcept { keep(kBlock, kBlock + allod::kSliceBytes); },
      [](auto&&) noexcept { return true; });
}
void look_up() {
  require(map->tag_of(kBlock) == kTag, "a block that nobody owns");
  require(map->span_of(kBlock) == kSpan, "a block without a span");
}

const bool kRegistered = [] {
  scenarios().push_back({"narrow_map", "blocks are found while the map is narrowed", 2, begin_map,
                         end_map, [](unsigned thread) { thread == 1 ? narrow() : look_up(); },
                         [] { look_up(); }});
  scenarios().push_back(
      {"publish_slab", "another thread frees the first block of a new slab", 2, begin, end,
       [](unsigned thread) { thread == 1 ? pass(kSmall) : free_passed(); }, check});
  scenarios().push_back({"publish_huge", "another thread frees a block with a new region", 2, begin,
                         end, [](unsigned thread) { thread == 1 ? pass(kHuge) : free_passed(); },
                         check});
  scenarios().push_back({"purge_span", "a free span is purged or taken again", 2,
                         [] {
                           begin();
                           world.release(*domains[1], world.allocate(*domains[1], kHuge));
                           world.heap().give_up_kept();
                         },
                         end,
                         [](unsigned thread) {
                           if (thread == 2)
                             return static_cast<void>(world.heap().space().purge_free());
                           world.allocate(*domains[1], kHuge);
                         },
                         [] { world.heap().check_invariants(); }});
  return true;
}();

}  // namespace
}  // namespace order::map
