#include "metrics.hpp"

#include <stdio.h>
#include <string.h>

#include <string_view>

#include "findings.hpp"
#include "reports.hpp"
#include "server.hpp"
#include "text/text.hpp"

namespace allod::live {

namespace {

class Metrics {
 public:
  explicit Metrics(evbuffer* to) noexcept : out_{&append, this}, to_{to} {}

  // Begins the family of the following values.
  Metrics& family(const char* name, const char* type, const char* help) noexcept {
    name_ = name;
    out_ << "# HELP allod_" << name << " " << help << "\n# TYPE allod_" << name << " " << type
         << "\n";
    return *this;
  }
  void value(std::uint64_t value) noexcept { out_ << "allod_" << name_ << " " << value << "\n"; }
  void value(std::string_view label, std::string_view text, std::uint64_t value) noexcept {
    out_ << "allod_" << name_ << "{" << label << "=\"";
    quote(text);
    out_ << "\"} " << value << "\n";
  }
  void signed_value(std::string_view label, std::string_view text, std::int64_t value) noexcept {
    out_ << "allod_" << name_ << "{" << label << "=\"" << text << "\"} " << value << "\n";
  }
  void gauge(const char* name, const char* help, std::uint64_t value) noexcept {
    family(name, "gauge", help).value(value);
  }
  void counter(const char* name, const char* help, std::uint64_t value) noexcept {
    family(name, "counter", help).value(value);
  }
  // `part` / `whole`, with four digits.
  void ratio(const char* name, const char* help, std::uint64_t part, std::uint64_t whole) noexcept {
    family(name, "gauge", help);
    const std::uint64_t share = whole == 0 ? 0 : part * 10'000 / whole;
    out_ << "allod_" << name_ << " " << share / 10'000 << ".";
    for (std::uint64_t digit = 1'000; digit > 0; digit /= 10) out_ << share / digit % 10;
    out_ << "\n";
  }
  [[nodiscard]] bool finish() noexcept {
    out_.flush();
    return !failed_;
  }

 private:
  static void append(const char* text, std::size_t length, void* context) noexcept {
    Metrics& metrics = *static_cast<Metrics*>(context);
    if (evbuffer_add(metrics.to_, text, length) != 0) metrics.failed_ = true;
  }
  void quote(std::string_view text) noexcept {
    for (const char c : text) {
      if (c == '\n') {
        out_ << "\\n";
      } else {
        if (c == '"' || c == '\\') out_ << "\\";
        out_ << std::string_view{&c, 1};
      }
    }
  }

  Text out_;
  evbuffer* to_;
  const char* name_ = "";
  bool failed_ = false;
};

// Names of threads that differ only in a number at the end form a group: worker-1, worker-2.
std::string_view group_of(const ThreadRow& row) noexcept {
  if (row.thread == 0) return "shared";
  std::string_view name = row.name;
  while (!name.empty() && (strchr("0123456789-_:#/. ", name.back()) != nullptr)) {
    name.remove_suffix(1);
  }
  return name.empty() ? std::string_view{"nameless"} : name;
}

template <class Value>
void write_groups(Metrics& metrics, const Figures& all, Value value) noexcept {
  const auto& rows = all.threads;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string_view group = group_of(rows[i]);
    std::uint64_t sum = 0;
    bool is_first = true;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (group_of(rows[k]) != group) continue;
      if (k < i) is_first = false;
      sum += value(rows[k]);
    }
    if (is_first) metrics.value("group", group, sum);
  }
}

// Sums over heaps of the same name, since labels must be unique within a metric.
template <class Value>
void write_heaps(Metrics& metrics, const Figures& all, Value value) noexcept {
  for (std::size_t i = 0; i < all.heaps.size(); ++i) {
    const std::string_view name = all.heaps[i].name;
    std::uint64_t sum = 0;
    bool is_first = true;
    for (std::size_t k = 0; k < all.heaps.size(); ++k) {
      if (name != all.heaps[k].name) continue;
      if (k < i) is_first = false;
      sum += value(all.heaps[k].figures);
    }
    if (is_first) metrics.value("heap", name.empty() ? "nameless" : name, sum);
  }
}

void write_foreign(Metrics& metrics, std::uint64_t sum, const Foreign& foreign) noexcept {
  metrics.family("not_allods_part_bytes", "gauge",
                 "Parts of the resident memory that is not Allod's.");
  metrics.value("part", "code", foreign.code);
  metrics.value("part", "stacks", foreign.stacks);
  metrics.value("part", "files", foreign.files);
  metrics.value("part", "other", above(sum, foreign.code + foreign.stacks + foreign.files));
}

void write_sums(Metrics& metrics, const Figures& all, const Foreign& foreign) noexcept {
  const allod_stats_t& stats = all.stats;
  const std::uint64_t active = stats.live + stats.cached + stats.free_in_slabs;
  metrics.gauge("allocated_bytes", "In blocks that the program holds, as rounded.", stats.live);
  metrics.gauge("allocated_blocks", "Blocks that the program holds.", stats.live_blocks);
  metrics.gauge("active_bytes", "In slabs and huge blocks, used or not.", active);
  metrics.gauge("cached_bytes", "In free blocks that threads keep at hand.", stats.cached);
  metrics.gauge("free_in_slabs_bytes", "In other free blocks of slabs in use.",
                stats.free_in_slabs);
  metrics.gauge("dirty_bytes", "In free spans, memory still held.", stats.dirty);
  metrics.gauge("retained_bytes", "In free spans, memory given back, addresses kept.", stats.clean);
  metrics.gauge("metadata_bytes", "Mapped for bookkeeping.", stats.metadata);
  metrics.gauge("reserved_bytes", "Address space of all regions.", stats.reserved);
  metrics.gauge("resident_bytes", "Resident memory of the process.", all.process.resident);
  metrics.gauge("not_allods_bytes", "Resident memory of the process that is not Allod's.",
                all.residency.not_ours);
  write_foreign(metrics, all.residency.not_ours, foreign);
  metrics.ratio("fragmentation_ratio", "Free in slabs, as a share of the slabs in use.",
                stats.free_in_slabs, active - stats.huge);
  metrics.gauge("threads", "Threads of the process.", all.process.threads);
  metrics.gauge("reported_bytes", "In blocks that allocators of the program reported.",
                reported_bytes());
  metrics.counter("minor_faults_total", "Page faults without input.", all.process.minor_faults);
  metrics.counter("major_faults_total", "Page faults with input.", all.process.major_faults);
  metrics.counter("purges_total", "Steps of giving memory back.", stats.purges);
  metrics.counter("purged_bytes_total", "Memory given back.", stats.purged);
  metrics.counter("remote_frees_total", "Blocks freed by another thread than their slab's.",
                  stats.remote_frees);
  metrics.counter("contended_total", "How often a thread waited for a lock.", stats.contended);
}

void write_nodes(Metrics& metrics, const Figures& all) noexcept {
  if (all.nodes.size() < 2) return;
  const auto write = [&](const char* name, const char* help, auto bytes_of) noexcept {
    metrics.family(name, "gauge", help);
    for (const allod_node_t& row : all.nodes) {
      char number[12];
      const int length = snprintf(number, sizeof number, "%u", row.node);
      metrics.value("node", {number, static_cast<std::size_t>(length)}, bytes_of(row));
    }
  };
  write("node_used_bytes", "In slabs and huge blocks of a memory node.",
        [](const allod_node_t& row) noexcept { return row.used; });
  write("node_dirty_bytes", "In free spans of a memory node, memory still held.",
        [](const allod_node_t& row) noexcept { return row.dirty; });
}

// Zero where nothing can be told, so that an alert needs no further rule.
void write_trends(Metrics& metrics, const Trends& trends) noexcept {
  metrics.family("growth_bytes_per_minute", "gauge",
                 "Growth over the newest stretch without a break; 0: none, or not sure.");
  const auto write = [&](const char* name, const Trend& trend) {
    const double rate = trend.is_sure() ? trend.rate : 0;
    metrics.signed_value("of", name, static_cast<std::int64_t>(rate));
  };
  write("live", trends.live);
  write("resident", trends.resident);
  write("held", trends.held);
}

void write_findings(Metrics& metrics, const Figures& all, const Trends& trends) noexcept {
  metrics.family("finding_bytes", "gauge",
                 "What the page's first sentence tells: bytes, of growth those of an hour.");
  for (const Finding& finding : Findings{all, trends}) {
    metrics.value("what", finding.what, std::uint64_t{finding.bytes});
  }
}

void write_push(Metrics& metrics, const Push& push) noexcept {
  if (!push.is_on()) return;
  metrics.family("pushes_total", "counter", "Profiles that were sent to a collector.");
  metrics.value("result", "taken", push.sent());
  metrics.value("result", "failed", push.failed());
}

}  // namespace

bool write_metrics(Server& server, evbuffer* to) noexcept {
  const Figures* const all = server.figures();
  if (all == nullptr) return false;
  Metrics metrics{to};
  metrics.family("info", "gauge", "The version of Allod.").value("version", allod_version(), 1);
  write_sums(metrics, *all, server.foreign());
  write_nodes(metrics, *all);
  write_trends(metrics, server.trends());
  write_findings(metrics, *all, server.trends());
  write_push(metrics, server.push());
  if (!all->heaps.empty()) {
    using Heap = allod_heap_stats_t;
    metrics.family("heap_allocated_bytes", "gauge", "In blocks of first-class heaps, by name.");
    write_heaps(metrics, *all, [](const Heap& heap) { return heap.live; });
    metrics.family("heap_held_bytes", "gauge", "In slabs and huge blocks of the heaps.");
    write_heaps(metrics, *all, [](const Heap& heap) { return heap.held; });
  }
  if (!all->threads.empty()) {
    metrics.family("thread_group_allocated_bytes", "gauge",
                   "In blocks of threads' slabs, by the threads' names without numbers.");
    write_groups(metrics, *all, [](const ThreadRow& row) { return row.live; });
    metrics.family("thread_group_cached_bytes", "gauge", "In free blocks that threads keep.");
    write_groups(metrics, *all, [](const ThreadRow& row) { return row.cached; });
  }
  return metrics.finish();
}

}  // namespace allod::live
