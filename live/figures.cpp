#include "figures.hpp"

#include <algorithm>

#include "symbols.hpp"

namespace allod::live {

namespace {

template <class T, class Get>
bool fill(Table<T>& table, Get get) noexcept {
  // Rows may be added between two calls.
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::size_t count = get(nullptr, std::size_t{0}, sizeof(T));
    if (!table.set_size(count + count / 8 + 16)) return false;
    const std::size_t there = get(table.begin(), table.size(), sizeof(T));
    if (there <= table.size()) return table.set_size(there);
  }
  return true;
}

std::uint64_t up_to(std::uint64_t value, std::uint64_t most) noexcept {
  return value < most ? value : most;
}

}  // namespace

void Figures::gather_sums() noexcept {
  process = process_figures();
  allod_stats_get(&stats, sizeof stats);
  profile = {};
  if (has_profile()) allod_profile_summary_get(&profile, sizeof profile);
  own = held_bytes();
}

bool Figures::gather_spans() noexcept {
  if (!fill(spans, &allod_spans_get) || !resident.set_size(spans.size())) return false;
  Table<Piece> pieces;
  if (!pieces.reserve(spans.size())) return false;
  for (const allod_span_t& span : spans) {
    if (!pieces.push({span.address, span.bytes})) return false;
  }
  measure_residency(pieces.begin(), pieces.size(), resident.begin());
  return true;
}

bool Figures::gather_all() noexcept {
  gather_sums();
  if (!gather_spans() || !gather_classes() || !gather_threads() || !gather_samples() ||
      !gather_heaps()) {
    return false;
  }
  take_apart();
  return true;
}

ClassRow* Figures::class_of(std::uint64_t size) noexcept {
  const auto found =
      std::lower_bound(classes.begin(), classes.end(), size,
                       [](const ClassRow& row, std::uint64_t key) { return row.size < key; });
  return found != classes.end() && found->size == size ? found : nullptr;
}

bool Figures::gather_classes() noexcept {
  classes.clear();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const allod_span_t& span = spans[i];
    if (span.kind != ALLOD_SPAN_SLAB && span.kind != ALLOD_SPAN_HUGE) continue;
    const bool huge = span.kind == ALLOD_SPAN_HUGE;
    const std::uint64_t size = huge ? 0 : span.block_bytes;
    ClassRow* row = class_of(size);
    if (row == nullptr) {
      ClassRow fresh;
      fresh.size = size;
      if (!classes.push(fresh)) return false;
      std::sort(classes.begin(), classes.end(),
                [](const ClassRow& a, const ClassRow& b) { return a.size < b.size; });
      row = class_of(size);
    }
    ++row->slabs;
    row->held += span.bytes;
    row->resident += resident[i];
    row->live += huge ? 1 : span.blocks - span.free;
    row->free += huge ? 0 : span.free;
  }
  return true;
}

// Also subtracts blocks in magazines from the live ones.
bool Figures::gather_threads() noexcept {
  threads.clear();
  thread_classes.clear();
  if (!has_profile()) return true;
  struct Walk {
    Figures& figures;
    bool failed;
  } walk{*this, false};
  const auto visit = [](const allod_profile_class_t* row, void* context) -> int {
    auto& [all, failed] = *static_cast<Walk*>(context);
    if (ClassRow* const sum = all.class_of(row->size)) {
      sum->cached += row->cached_blocks;
      sum->live = above(sum->live, row->cached_blocks);
      sum->allocated += row->allocated_blocks;
      sum->freed += row->freed_blocks;
    }
    ThreadRow* const to = all.thread_row(row->thread == 0 ? 0 : row->domain, row->thread);
    if (to == nullptr) return failed = true;
    const std::uint64_t live = above(row->used_blocks, row->cached_blocks);
    to->live += live * row->size;
    to->blocks += live;
    to->cached += row->cached_blocks * row->size;
    to->allocated += row->allocated_blocks * row->size;
    to->allocated_blocks += row->allocated_blocks;
    to->freed_blocks += row->freed_blocks;
    if (live != 0 && row->size != 0) {
      const ThreadClassRow of_class{to->domain, static_cast<std::uint32_t>(row->size), live};
      if (!all.thread_classes.push(of_class)) return failed = true;
    }
    return 0;
  };
  allod_profile_visit_classes(visit, &walk);
  const auto by_domain = [](const auto& a, const auto& b) { return a.domain < b.domain; };
  std::sort(threads.begin(), threads.end(), by_domain);
  std::sort(thread_classes.begin(), thread_classes.end(), by_domain);
  return !walk.failed;
}

// Rows of a thread are consecutive. All shared domains are one row, with domain 0.
ThreadRow* Figures::thread_row(std::uint32_t domain, std::uint32_t thread) noexcept {
  for (std::size_t i = threads.size(); i-- > 0;) {
    if (threads[i].domain == domain) return &threads[i];
    if (domain != 0) break;
  }
  ThreadRow fresh;
  fresh.domain = domain;
  fresh.thread = thread;
  return threads.push(fresh) ? &threads.back() : nullptr;
}

bool Figures::gather_heaps() noexcept {
  return fill(heaps, &allod_heaps_get) && fill(nodes, &allod_nodes_get);
}

// Samples lie outside their threads' slabs. Each is one block, but represents several.
bool Figures::gather_samples() noexcept {
  if (!has_profile() || profile.live_samples == 0) return true;
  struct Owner {
    std::uint32_t thread;
    std::uint32_t row;
  };
  struct Walk {
    Figures& figures;
    Table<Owner> owners;  // by thread
  } walk{*this, {}};
  static_cast<void>(thread_row(0, 0));
  std::sort(threads.begin(), threads.end(),
            [](const ThreadRow& a, const ThreadRow& b) { return a.domain < b.domain; });
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!walk.owners.push({threads[i].thread, static_cast<std::uint32_t>(i)})) return false;
  }
  std::sort(walk.owners.begin(), walk.owners.end(),
            [](const Owner& a, const Owner& b) { return a.thread < b.thread; });
  const auto visit = [](const allod_profile_block_t* block, void* context) {
    auto& [all, owners] = *static_cast<Walk*>(context);
    ClassRow* row = all.class_of(block->bytes);
    if (row == nullptr) row = all.class_of(0);
    if (row != nullptr) {
      row->sampled += block->bytes * block->count_x256 / 256;
      row->requested += block->requested * block->count_x256 / 256;
    }
    auto owner =
        std::lower_bound(owners.begin(), owners.end(), block->thread,
                         [](const Owner& it, std::uint32_t thread) { return it.thread < thread; });
    // The thread has ended, or has no slabs of its own.
    if (owner == owners.end() || owner->thread != block->thread) owner = owners.begin();
    ThreadRow& to = all.threads[owner->row];
    to.live += block->bytes;
    ++to.blocks;
    return 0;
  };
  if (!walk.owners.empty()) allod_profile_visit_blocks(visit, &walk);
  return true;
}

// Blocks are handed out in address order, so untouched pages of a slab hold free blocks.
void Figures::take_apart() noexcept {
  residency = {};
  std::uint64_t ours = 0;
  for (const ClassRow& row : classes) {
    if (row.size == 0) {
      residency.live += row.resident;
      residency.untouched += row.held - row.resident;
    } else {
      const std::uint64_t live = up_to(row.live * row.size, row.resident);
      const std::uint64_t cached = up_to(row.cached * row.size, row.resident - live);
      residency.live += live;
      residency.cached += cached;
      residency.free_in_slabs += row.resident - live - cached;
      residency.untouched += row.live * row.size - live;
    }
    ours += row.resident;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::uint32_t kind = spans[i].kind;
    if (kind == ALLOD_SPAN_DIRTY || kind == ALLOD_SPAN_CLEAN) {
      residency.dirty += resident[i];
      ours += resident[i];
    } else if (kind == ALLOD_SPAN_OWN) {
      residency.page += resident[i];
      ours += resident[i];
    }
  }
  const std::uint64_t symbols = up_to(symbol_bytes(), above(process.resident, ours));
  residency.page += symbols;
  ours += symbols;
  residency.metadata = up_to(stats.metadata, above(process.resident, ours));
  residency.not_ours = above(process.resident, ours + residency.metadata);
}

}  // namespace allod::live
