#include "statistics/stats.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "instance/process.hpp"
#include "settings/options.hpp"
#include "settings/variant.hpp"
#include "statistics/nodes.hpp"
#include "statistics/usage.hpp"
#include "text/output_file.hpp"

namespace allod {

namespace {

using Heap = Process::Heap;
constexpr ClassIndex kClasses = Heap::kClasses;

struct ClassCount {
  std::size_t slabs;
  std::size_t blocks;
  std::size_t free;    // in slabs
  std::size_t cached;  // in magazines
  [[nodiscard]] std::size_t live() const noexcept {
    return blocks > free + cached ? blocks - free - cached : 0;
  }
};

struct Count {
  ClassCount classes[kClasses] = {};
  std::size_t huge_blocks = 0;
  std::size_t huge_bytes = 0;
  std::size_t kept_blocks = 0;  // free huge spans kept for reuse; used as far as the space knows
  std::size_t kept_bytes = 0;
  std::size_t kept_present = 0;   // of these bytes, resident
  std::uint64_t kept_reused = 0;  // since the start
  std::size_t mixed_blocks = 0;   // blocks of any size in buffers of first-class heaps
  std::size_t mixed_bytes = 0;
  std::size_t orphan_slabs = 0;
  std::size_t domains = 0;
  std::size_t active_domains = 0;
  std::size_t shared_domains = 0;
  std::size_t caches = 0;
  space::SpaceCounters space;
  std::size_t metadata_mapped = 0;
  std::size_t metadata_used = 0;
};

struct DomainSums {
  std::uint64_t refills = 0, flushes = 0, remote_frees = 0, remote_batches = 0, collected = 0,
                slabs_created = 0, slabs_retired = 0, slabs_adopted = 0, shrinks = 0;

  void add(const heap::DomainCounters& counters) noexcept {
    refills += counters.refills.value();
    flushes += counters.flushes.value();
    remote_frees += counters.remote_frees.value();
    remote_batches += counters.remote_batches.value();
    collected += counters.collected.value();
    slabs_created += counters.slabs_created.value();
    slabs_retired += counters.slabs_retired.value();
    slabs_adopted += counters.slabs_adopted.value();
    shrinks += counters.magazine_shrinks.value();
  }
};

void count_span(Count& count, const space::Span& span) noexcept {
  if (span.state != space::SpanState::used) return;
  const heaps::Domain* const heap = heaps::heap_of(span);
  if (heap != nullptr && heap->unseen) return;
  if (Process::heap().is_kept(span)) {
    ++count.kept_blocks;
    count.kept_bytes += span.size.bytes();
    count.kept_present += Process::heap().present_in_kept(span);
    return;
  }
  if (span.home == nullptr) {
    ++count.huge_blocks;
    count.huge_bytes += span.size.bytes();
    return;
  }
  const auto& slab = static_cast<const slab::Slab&>(span);
  if (slab::is_mixed(slab)) {
    const auto& mixed = slab::as_mixed(slab);
    count.mixed_blocks += mixed.count_starts();
    count.mixed_bytes += mixed.usable_bytes() - mixed.free_count() * slab::MixedSlab::kGrain;
  }
  if (slab.size_class() >= kClasses) return;
  ClassCount& c = count.classes[slab.size_class()];
  ++c.slabs;
  c.blocks += slab.capacity();
  c.free += slab.free_count() + slab.remote_count();
  if (slab.owner() == nullptr) ++count.orphan_slabs;
}

// Counts blocks in magazines and in outgoing batches of remote frees. Running threads own them, so
// the figures may be slightly stale.
void count_domain(Count& count, Heap::Domain& domain) noexcept {
  ++count.domains;
  count.kept_reused += domain.counters.kept_reused.value();
  if (domain.state == heap::DomainState::pooled) return;
  ++count.active_domains;
  const auto count_front = [&](const auto& front) {
    for (ClassIndex c = 0; c < kClasses; ++c) {
      for (const heap::Magazine* magazine : {&front.magazines[c], &front.freed[c]}) {
        const std::uint32_t cached = magazine->count();
        if (cached <= magazine->capacity()) count.classes[c].cached += cached;
      }
    }
  };
  count_front(domain);
  if (domain.state == heap::DomainState::shared) ++count.shared_domains;
  Heap::for_each_cache(domain, [&](const Heap::Cache& cache) {
    if (cache.is_used) ++count.caches;
    count_front(cache);
  });
  for (const heap::RemoteBatch& batch : domain.remote()) {
    const slab::Slab* const slab = __atomic_load_n(&batch.slab, __ATOMIC_RELAXED);
    if (slab != nullptr && slab->size_class() < kClasses) {
      count.classes[slab->size_class()].cached += count_bits(batch.bits);
    }
  }
}

void take_count(Count& count) noexcept {
  Process::ensure_started();
  Heap& heap = Process::heap();
  const std::size_t unseen = heaps::unseen_bytes();
  LockGuard guard{heap.registry_lock()};
  heap.for_each_domain([&](Heap::Domain& domain) { count_domain(count, domain); });
  heap.space().for_each_span([&](const space::Span& span) { count_span(count, span); });
  count.space = heap.space().counters();
  const std::size_t unused = unseen + count.kept_bytes;
  count.space.used -= unused < count.space.used ? unused : count.space.used;
  count.space.dirty += count.kept_present;
  count.space.clean += count.kept_bytes - count.kept_present;
  count.space.span_allocations += count.kept_reused;
  count.space.span_frees += count.kept_reused + count.kept_blocks;
  count.metadata_mapped = heap.space().metadata().mapped_bytes();
  count.metadata_used = heap.space().metadata().used_bytes();
}

DomainSums sum_domains() noexcept {
  DomainSums sums;
  Heap& heap = Process::heap();
  LockGuard guard{heap.registry_lock()};
  heap.for_each_domain([&](Heap::Domain& domain) { sums.add(domain.counters); });
  return sums;
}

struct Contention {
  std::uint64_t domains, registry, space, metadata;
  [[nodiscard]] std::uint64_t sum() const noexcept { return domains + registry + space + metadata; }
};
Contention contention() noexcept {
  Heap& heap = Process::heap();
  std::uint64_t domains = 0;
  {
    LockGuard guard{heap.registry_lock()};
    heap.for_each_domain([&](Heap::Domain& domain) { domains += domain.lock.contended(); });
  }
  return {domains, heap.registry_lock().contended(), heap.space().lock().contended(),
          heap.space().metadata().lock().contended()};
}

allod_stats_t summarise(const Count& count) noexcept {
  allod_stats_t stats{};
  for (ClassIndex c = 0; c < kClasses; ++c) {
    const ClassCount& it = count.classes[c];
    const std::size_t size = Process::Sizes::size_of(c);
    stats.live += it.live() * size;
    stats.live_blocks += it.live();
    stats.cached += it.cached * size;
    stats.free_in_slabs += it.free * size;
  }
  stats.huge = count.huge_bytes;
  stats.huge_blocks = count.huge_blocks;
  stats.live += stats.huge + count.mixed_bytes;
  stats.live_blocks += stats.huge_blocks + count.mixed_blocks;
  stats.dirty = count.space.dirty;
  stats.clean = count.space.clean;
  stats.reserved = count.space.reserved;
  stats.metadata = count.metadata_mapped;
  stats.purges = count.space.purges;
  stats.purged = count.space.purged;
  stats.moves = count.space.moves;
  stats.moved = count.space.moved;
  stats.contended = contention().sum();
  return stats;
}

struct Snapshot {
  Count count;
  allod_stats_t all;
  DomainSums sums;
  Contention locks;
  Faults faults;
  Resident memory;
};
Snapshot take_snapshot() noexcept {
  Snapshot now{};
  take_count(now.count);
  now.all = summarise(now.count);
  now.sums = sum_domains();
  now.locks = contention();
  now.faults = page_faults();
  now.memory = resident();
  return now;
}

class JsonObject {
 public:
  explicit JsonObject(Text& out) noexcept : out_{out} { out_ << "{"; }
  ~JsonObject() { out_ << "}"; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  JsonObject& field(std::string_view name, std::uint64_t value) noexcept {
    key(name) << value;
    return *this;
  }
  JsonObject& field(std::string_view name, const char* text) noexcept {
    key(name) << Quoted{text};
    return *this;
  }
  [[gnu::noinline]] Text& key(std::string_view name) noexcept {
    if (!first_) out_ << ", ";
    first_ = false;
    return out_ << "\"" << name << "\": ";
  }

 private:
  Text& out_;
  bool first_ = true;
};

// Writes the objects of one JSON array; each follows its call of next().
class JsonRows {
 public:
  explicit JsonRows(Text& out) noexcept : out_{out} { out_ << "["; }
  ~JsonRows() { out_ << "]"; }
  JsonRows(const JsonRows&) = delete;
  JsonRows& operator=(const JsonRows&) = delete;

  Text& next() noexcept {
    if (!first_) out_ << ", ";
    first_ = false;
    return out_;
  }

 private:
  Text& out_;
  bool first_ = true;
};

}  // namespace

allod_stats_t collect_summary() noexcept {
  Count count;
  take_count(count);
  allod_stats_t stats = summarise(count);
  stats.remote_frees = sum_domains().remote_frees;
  return stats;
}

void write_stats_text(Text& out) noexcept {
  const auto [count, all, sums, locks, faults, memory] = take_snapshot();
  out << "allod " << kVersion << " statistics of process "
      << static_cast<std::int64_t>(raw_syscall(SYS_getpid)) << ", "
      << Quoted{program_invocation_short_name} << "\n";
  out << "live       " << Human{all.live} << " in " << all.live_blocks
      << " blocks (huge: " << Human{all.huge} << " in " << all.huge_blocks << "); never more than "
      << Human{count.space.peak_used} << "\n";
  out << "resident   " << Human{memory.now} << ", " << Human{memory.peak} << " at most\n";
  out << "free       " << Human{all.cached} << " at hand, " << Human{all.free_in_slabs}
      << " in slabs, " << Human{all.dirty} << " dirty, " << Human{all.clean} << " given back\n";
  out << "spans      " << Human{count.space.used} << " in use, " << Human{count.space.peak_used}
      << " at most; " << count.space.span_allocations << " taken, " << count.space.span_frees
      << " freed, " << count.space.refused << " refused\n";
  out << "regions    " << count.space.regions << " of " << Human{all.reserved}
      << " of addresses; metadata " << Human{count.metadata_used} << " of " << Human{all.metadata}
      << "\n";
  out << "domains    " << count.active_domains << " active, " << count.shared_domains << " shared, "
      << count.domains << " ever at once; " << count.caches << " caches; " << count.orphan_slabs
      << " orphaned slabs\n";
  out << "slow paths " << sums.refills << " refills, " << sums.flushes << " flushes, "
      << sums.shrinks << " shrinks; slabs: " << sums.slabs_created << " created, "
      << sums.slabs_retired << " retired, " << sums.slabs_adopted << " adopted\n";
  out << "remote     " << sums.remote_frees << " frees in " << sums.remote_batches << " batches, "
      << sums.collected << " collected\n";
  out << "purges     " << all.purges << " of " << Human{all.purged} << "; " << all.moves
      << " moves of " << Human{all.moved} << "\n";
  out << "contention " << locks.domains << " domains, " << locks.registry << " registry, "
      << locks.space << " space, " << locks.metadata << " metadata\n";
  out << "faults     " << faults.minor << " minor, " << faults.major << " major\n";
  for (const allod_node_t& node : Nodes{}) {
    out << "node " << node.node << ": " << Human{node.used} << " in use, " << Human{node.dirty}
        << " dirty, " << Human{node.clean} << " given back\n";
  }
  heaps::Domain* cursor = nullptr;
  for (heaps::Row row; heaps::next_row(&cursor, &row);) {
    out << "heap " << row.id;
    if (row.name[0] != '\0') out << " " << Quoted{row.name};
    out << ": " << Human{row.figures.live} << " in " << std::uint64_t{row.figures.live_blocks}
        << " blocks, " << Human{row.figures.peak_live} << " at most; holds "
        << Human{row.figures.held};
    if (row.figures.limit != SIZE_MAX) out << ", limit " << Human{row.figures.limit};
    out << "\n";
  }
  out << "     size    slabs     live     free   cached\n";
  for (ClassIndex c = 0; c < kClasses; ++c) {
    const ClassCount& it = count.classes[c];
    if (it.slabs == 0) continue;
    out << Padded{Process::Sizes::size_of(c), 9} << Padded{it.slabs, 9} << Padded{it.live(), 9}
        << Padded{it.free, 9} << Padded{it.cached, 9} << "\n";
  }
}

namespace {

// What all of the heap has done and holds.
void write_sums_json(Text& out, JsonObject& json, const Snapshot& now) noexcept {
  const auto& [count, all, sums, locks, faults, memory] = now;
  json.field("resident", memory.now).field("resident_peak", memory.peak);
  json.field("live", all.live).field("live_blocks", all.live_blocks);
  json.field("huge", all.huge).field("huge_blocks", all.huge_blocks);
  json.field("cached", all.cached).field("free_in_slabs", all.free_in_slabs);
  json.field("dirty", all.dirty).field("clean", all.clean).field("reserved", all.reserved);
  json.field("regions", count.space.regions);
  {
    json.key("spans");
    JsonObject spans{out};
    spans.field("used", count.space.used).field("peak_used", count.space.peak_used);
    spans.field("taken", count.space.span_allocations).field("freed", count.space.span_frees);
    spans.field("refused", count.space.refused);
  }
  {
    json.key("metadata");
    JsonObject metadata{out};
    metadata.field("mapped", count.metadata_mapped).field("used", count.metadata_used);
  }
  {
    json.key("slow_paths");
    JsonObject slow{out};
    slow.field("refills", sums.refills).field("flushes", sums.flushes);
    slow.field("shrinks", sums.shrinks).field("slabs_created", sums.slabs_created);
    slow.field("slabs_retired", sums.slabs_retired).field("slabs_adopted", sums.slabs_adopted);
  }
  {
    json.key("remote");
    JsonObject remote{out};
    remote.field("frees", sums.remote_frees).field("batches", sums.remote_batches);
    remote.field("collected", sums.collected);
  }
  {
    json.key("purge");
    JsonObject purge{out};
    purge.field("steps", all.purges).field("bytes", all.purged);
    purge.field("moves", all.moves).field("moved", all.moved);
  }
  {
    json.key("contention");
    JsonObject lock{out};
    lock.field("domains", locks.domains).field("registry", locks.registry);
    lock.field("space", locks.space).field("metadata", locks.metadata);
  }
  {
    json.key("faults");
    JsonObject fault{out};
    fault.field("minor", faults.minor).field("major", faults.major);
  }
  json.field("orphan_slabs", count.orphan_slabs).field("caches", count.caches);
}

void write_class_rows_json(JsonRows& rows, const Count& count) noexcept {
  for (ClassIndex c = 0; c < kClasses; ++c) {
    const ClassCount& it = count.classes[c];
    if (it.slabs == 0) continue;
    JsonObject row{rows.next()};
    row.field("size", Process::Sizes::size_of(c)).field("slabs", it.slabs);
    row.field("live", it.live()).field("free", it.free).field("cached", it.cached);
  }
}

void write_nodes_json(JsonObject& json) noexcept {
  JsonRows rows{json.key("nodes")};
  for (const allod_node_t& node : Nodes{}) {
    JsonObject row{rows.next()};
    row.field("node", node.node).field("used", node.used);
    row.field("dirty", node.dirty).field("clean", node.clean);
  }
}

void write_domain_rows_json(JsonRows& rows) noexcept {
  Heap& heap = Process::heap();
  Heap::Domain* domain = nullptr;
  for (;;) {
    DomainSums own;
    std::uint32_t thread = 0;
    {
      // Not while text is handed over: its receiver may allocate.
      LockGuard guard{heap.registry_lock()};
      domain = heap.next_domain(domain);
      if (domain == nullptr) return;
      if (domain->state == heap::DomainState::pooled) continue;
      own.add(domain->counters);
      thread = domain->thread;
    }
    JsonObject row{rows.next()};
    row.field("id", domain->id() / 2).field("thread", thread);
    row.field("refills", own.refills).field("flushes", own.flushes);
    row.field("remote_frees", own.remote_frees).field("collected", own.collected);
  }
}

}  // namespace

void write_stats_json(Text& out) noexcept {
  const Snapshot now = take_snapshot();
  {
    JsonObject json{out};
    json.key("version") << "\"" << kVersion << "\"";
    json.field("pid", static_cast<std::uint64_t>(raw_syscall(SYS_getpid)));
    json.field("program", program_invocation_short_name);
    write_sums_json(out, json, now);
    write_nodes_json(json);
    {
      JsonRows rows{json.key("classes")};
      write_class_rows_json(rows, now.count);
    }
    {
      JsonRows rows{json.key("domains")};
      write_domain_rows_json(rows);
    }
    JsonRows rows{json.key("heaps")};
    heaps::Domain* cursor = nullptr;
    for (heaps::Row row; heaps::next_row(&cursor, &row);) write_heap_json(rows.next(), row);
  }
  out << "\n";
}

void write_heap_json(Text& out, const heaps::Row& heap) noexcept {
  const heaps::HeapFigures& figures = heap.figures;
  JsonObject row{out};
  row.field("name", heap.name).field("id", heap.id);
  row.field("live", figures.live).field("live_blocks", figures.live_blocks);
  row.field("peak_live", figures.peak_live).field("held", figures.held);
  row.field("slabs", figures.slabs).field("huge_blocks", figures.huge_blocks);
  row.field("limit", figures.limit == SIZE_MAX ? 0 : figures.limit);
  row.field("refused", figures.refused);
}

void write_stats_xml(Text& out) noexcept {
  Count count;
  take_count(count);
  const allod_stats_t all = summarise(count);
  out << "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n";
  for (ClassIndex c = 0; c < kClasses; ++c) {
    const ClassCount& it = count.classes[c];
    if (it.free + it.cached == 0) continue;
    const std::uint64_t to = Process::Sizes::size_of(c);
    const std::uint64_t from = c == 0 ? 1 : Process::Sizes::size_of(c - 1) + 1;
    out << "<size from=\"" << from << "\" to=\"" << to << "\" total=\""
        << (it.free + it.cached) * to << "\" count=\"" << it.free + it.cached << "\"/>\n";
  }
  out << "</sizes>\n</heap>\n";
  out << "<total type=\"fast\" count=\"0\" size=\"" << std::uint64_t{all.cached} << "\"/>\n";
  out << "<total type=\"rest\" count=\"0\" size=\"" << std::uint64_t{all.free_in_slabs + all.dirty}
      << "\"/>\n";
  out << "<total type=\"mmap\" count=\"" << std::uint64_t{all.huge_blocks} << "\" size=\""
      << std::uint64_t{all.huge} << "\"/>\n";
  out << "<system type=\"current\" size=\"" << std::uint64_t{all.reserved} << "\"/>\n";
  out << "<system type=\"max\" size=\"" << std::uint64_t{count.space.peak_used} << "\"/>\n";
  out << "<aspace type=\"total\" size=\"" << std::uint64_t{all.reserved} << "\"/>\n</malloc>\n";
}

void print_stats_to_stderr() noexcept {
  DescriptorText out{2};
  write_stats_text(out);
}

void show_stats_if_asked() noexcept {
  const Settings& chosen = settings();
  if (chosen.show_stats == StatsFormat::none) return;
  const auto write = [&](Text& out) noexcept {
    chosen.show_stats == StatsFormat::json ? write_stats_json(out) : write_stats_text(out);
  };
  if (chosen.stats_file != nullptr) {
    const OutputFile file{chosen.stats_file, ""};
    const long error = file.write(write);
    if (error == 0) return;
    file.warn("statistics", error, "; they follow here");
  }
  DescriptorText out{2};
  write(out);
}

}  // namespace allod
