#include "portable/statistics.hpp"

#include "portable/heap.hpp"
#include "settings/variant.hpp"

namespace allod::portable {

namespace {

using Heap = Process::Heap;

void count_span(allod_stats_t& stats, const space::Span& span) noexcept {
  if (span.state != space::SpanState::used) return;
  if (Process::heap().is_kept(span)) {
    const std::size_t present = Process::heap().present_in_kept(span);
    stats.dirty += present;
    stats.clean += span.size.bytes() - present;
    return;
  }
  if (span.home == nullptr) {
    stats.huge += span.size.bytes();
    ++stats.huge_blocks;
    return;
  }
  const auto& slab = static_cast<const slab::Slab&>(span);
  if (slab.size_class() >= Heap::kClasses) return;
  const std::size_t size = Process::Sizes::size_of(slab.size_class());
  const std::size_t free = slab.free_count() + slab.remote_count();
  stats.free_in_slabs += free * size;
  stats.live += (slab.capacity() - free) * size;
  stats.live_blocks += slab.capacity() - free;
}

// Blocks in magazines, and in outgoing batches of remote frees, are no longer the program's.
void take_off(allod_stats_t& stats, std::size_t blocks, std::size_t size) noexcept {
  stats.cached += blocks * size;
  stats.live -= blocks * size < stats.live ? blocks * size : stats.live;
  stats.live_blocks -= blocks < stats.live_blocks ? blocks : stats.live_blocks;
}

void count_domain(allod_stats_t& stats, Heap::Domain& domain) noexcept {
  stats.remote_frees += domain.counters.remote_frees.value();
  stats.contended += domain.lock.contended();
  if (domain.state == heap::DomainState::pooled) return;
  const auto count_front = [&](const auto& front) noexcept {
    for (ClassIndex c = 0; c < Heap::kClasses; ++c) {
      for (const heap::Magazine* magazine : {&front.magazines[c], &front.freed[c]}) {
        const std::uint32_t cached = magazine->count();
        if (cached <= magazine->capacity()) take_off(stats, cached, Process::Sizes::size_of(c));
      }
    }
  };
  count_front(domain);
  Heap::for_each_cache(domain, [&](const Heap::Cache& cache) noexcept { count_front(cache); });
  for (const heap::RemoteBatch& batch : domain.remote()) {
    const slab::Slab* const slab = __atomic_load_n(&batch.slab, __ATOMIC_RELAXED);
    if (slab == nullptr || slab->size_class() >= Heap::kClasses) continue;
    take_off(stats, count_bits(batch.bits), Process::Sizes::size_of(slab->size_class()));
  }
}

}  // namespace

allod_stats_t collect_summary() noexcept {
  Process::ensure_started();
  Heap& heap = Process::heap();
  allod_stats_t stats{};
  LockGuard guard{heap.registry_lock()};
  heap.space().for_each_span([&](const space::Span& span) noexcept { count_span(stats, span); });
  heap.for_each_domain([&](Heap::Domain& domain) noexcept { count_domain(stats, domain); });
  const space::SpaceCounters& counters = heap.space().counters();
  stats.live += stats.huge;
  stats.live_blocks += stats.huge_blocks;
  stats.dirty += counters.dirty;
  stats.clean += counters.clean;
  stats.reserved = counters.reserved;
  stats.metadata = heap.space().metadata().mapped_bytes();
  stats.purges = counters.purges;
  stats.purged = counters.purged;
  stats.contended += heap.registry_lock().contended() + heap.space().lock().contended() +
                     heap.space().metadata().lock().contended();
  return stats;
}

void write_summary(Text& out) noexcept {
  const allod_stats_t stats = collect_summary();
  out << "allod " << kVersion << " statistics\n";
  out << "live       " << Human{stats.live} << " in " << stats.live_blocks
      << " blocks (huge: " << Human{stats.huge} << " in " << stats.huge_blocks << ")\n";
  out << "free       " << Human{stats.cached} << " at hand, " << Human{stats.free_in_slabs}
      << " in slabs, " << Human{stats.dirty} << " dirty, " << Human{stats.clean} << " given back\n";
  out << "regions    " << Human{stats.reserved} << " of addresses; metadata "
      << Human{stats.metadata} << "\n";
  out << "remote     " << stats.remote_frees << " frees\n";
  out << "purges     " << stats.purges << " of " << Human{stats.purged} << "\n";
  out << "contention " << stats.contended << "\n";
}

}  // namespace allod::portable
