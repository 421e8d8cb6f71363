#include "report/heap_reports.hpp"

#include <stdlib.h>

#include "report/tracker.hpp"

namespace allod::heaps {

namespace {

Text& write_name(Text& out, const Domain& heap) noexcept {
  if (heap.name[0] == '\0') return out << "heap " << heap.id();
  return out << "heap " << Quoted{heap.name};
}

[[maybe_unused]] void write_origin(Text& out, const void* block) noexcept {
  History history;
  std::size_t requested;
  if (!find_history(block, &history, &requested)) return;
  out << ", requested with " << std::uint64_t{requested} << " bytes";
  write_history(out, history);
}

}  // namespace

void report_gone(const Domain& heap) noexcept {
  {
    Message message;
    write_name(message << "error: use of ", heap)
        << " after it was " << (heap.was_deleted ? "deleted" : "destroyed");
    if constexpr (Policy::kTracked) {
      Stack stack;
      capture_stack(stack);
      write_event(message, "this call", Process::heap().space().platform().thread_id(), stack);
    }
  }
  abort();
}

std::size_t report_leaks(Domain& heap) noexcept {
  constexpr std::size_t kMost = 20;
  const HeapFigures figures = Process::heap().figures_of(heap);
  if (figures.live_blocks == 0) return 0;
  Message message;
  write_name(message, heap) << " has " << std::uint64_t{figures.live_blocks}
                            << (figures.live_blocks == 1 ? " block" : " blocks") << " in use, "
                            << std::uint64_t{figures.live} << " bytes";
  std::size_t told = 0;
  const auto tell = [&](void* block, std::size_t bytes) noexcept {
    if (told == kMost) return false;
    ++told;
    message << "\nallod:   block " << Hex{address_of(block)} << " of " << std::uint64_t{bytes}
            << " bytes";
    if constexpr (kMayKeepHistory) write_origin(message, block);
    return true;
  };
  static_cast<void>(Process::heap().walk_heap(heap, tell));
  if (figures.live_blocks > told) {
    message << "\nallod:   and " << std::uint64_t{figures.live_blocks - told} << " more";
  }
  return figures.live_blocks;
}

void report_leaks_at_exit() noexcept {
  Process::Heap& engine = Process::heap();
  for (Domain* heap = nullptr;;) {
    {
      LockGuard guard{engine.registry_lock()};
      heap = engine.next_heap(heap);
    }
    if (heap == nullptr) return;
    if (heap->active && heap->reports_leaks) report_leaks(*heap);
  }
}

}  // namespace allod::heaps
