#include "state.hpp"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "findings.hpp"
#include "json.hpp"
#include "moments.hpp"
#include "reports.hpp"
#include "server.hpp"

namespace allod::live {

namespace {

void write_process(Json& json, Server& server) noexcept {
  char command[512];
  const std::size_t length = read_file("/proc/self/cmdline", command, sizeof command);
  for (std::size_t i = 0; i + 1 < length; ++i) {
    if (command[i] == '\0') command[i] = ' ';
  }
  char name[16];
  thread_name(static_cast<std::uint32_t>(getpid()), name);
  json.object("process");
  json.field("id", std::int32_t{getpid()}).field("name", name).field("command", command);
  json.field("version", allod_version());
  json.field("started_ms", server.started_ms()).field("now_ms", wall_clock_ms());
  json.end();
}

// The parts may be a little older than the sum.
void write_foreign(Json& json, const Foreign& foreign, std::uint64_t sum) noexcept {
  const std::uint64_t code = std::min(foreign.code, sum);
  const std::uint64_t stacks = std::min(foreign.stacks, sum - code);
  const std::uint64_t files = std::min(foreign.files, sum - code - stacks);
  json.object("foreign");
  json.field("code", code).field("stacks", stacks).field("files", files);
  json.field("other", sum - code - stacks - files);
  json.field("pool", foreign.pool == nullptr ? "" : foreign.pool);
  json.field("remedy", foreign.remedy == nullptr ? "" : foreign.remedy);
  json.end();
}

void write_now(Json& json, Server& server, const Figures& all) noexcept {
  const allod_stats_t& stats = all.stats;
  std::uint64_t slabs = 0;
  std::uint64_t tails = 0;
  for (const ClassRow& row : all.classes) {
    if (row.size == 0) continue;
    slabs += row.slabs;
    tails += row.held - (row.live + row.free + row.cached) * row.size;
  }
  json.object("now");
  json.field("resident", all.process.resident).field("addresses", all.process.addresses);
  json.field("threads", all.process.threads);
  json.field("minor_faults", all.process.minor_faults);
  json.field("major_faults", all.process.major_faults);
  json.field("live", stats.live).field("live_blocks", stats.live_blocks);
  json.field("huge", stats.huge).field("huge_blocks", stats.huge_blocks);
  json.field("cached", stats.cached).field("free_in_slabs", stats.free_in_slabs);
  json.field("tails", tails).field("slabs", slabs);
  json.field("dirty", stats.dirty).field("clean", stats.clean);
  json.field("metadata", stats.metadata).field("reserved", stats.reserved);
  json.field("held", stats.live + stats.cached + stats.free_in_slabs + tails + stats.dirty +
                         stats.metadata);
  json.field("purges", stats.purges).field("purged", stats.purged);
  json.field("remote_frees", stats.remote_frees).field("contended", stats.contended);
  json.field("own", all.own);
  json.field("peak_resident", server.history().peak_resident());
  json.field("peak_live", server.history().peak_live());
  json.field("reported", reported_bytes()).field("reported_blocks", reported_blocks());
  json.field("reported_peak", reported_peak());
  json.end();
  const Residency& parts = all.residency;
  json.object("residency");
  json.field("not_ours", parts.not_ours).field("metadata", parts.metadata);
  json.field("page", parts.page).field("dirty", parts.dirty);
  json.field("free_in_slabs", parts.free_in_slabs).field("cached", parts.cached);
  json.field("live", parts.live).field("untouched", parts.untouched);
  json.end();
  write_foreign(json, server.foreign(), parts.not_ours);
  // Of what is in memory; what was given back is no waste.
  json.field("waste", parts.free_in_slabs + parts.cached + parts.dirty + parts.metadata);
}

void write_trend(Json& json, const char* name, const Trend& trend) noexcept {
  json.object(name);
  json.field("rate", static_cast<std::int64_t>(trend.rate));
  json.field("low", static_cast<std::int64_t>(trend.low));
  json.field("high", static_cast<std::int64_t>(trend.high));
  json.field("sure", trend.is_sure()).field("span_ms", trend.span_ms);
  json.end();
}

void write_conclusions(Json& json, const Figures& all, const Trends& trends) noexcept {
  json.object("trends");
  write_trend(json, "live", trends.live);
  write_trend(json, "resident", trends.resident);
  write_trend(json, "held", trends.held);
  json.end().array("findings");
  for (const Finding& finding : Findings{all, trends}) {
    json.object().field("what", finding.what).field("bytes", finding.bytes);
    json.field("panel", finding.panel).field("alarm", finding.is_alarm).end();
  }
  json.end();
}

void write_classes(Json& json, const Figures& all) noexcept {
  json.array("classes");
  for (const ClassRow& row : all.classes) {
    json.object();
    json.field("size", row.size).field("slabs", row.slabs).field("held", row.held);
    json.field("live", row.live).field("free", row.free).field("cached", row.cached);
    // Huge blocks have different sizes.
    json.field("live_bytes", row.size == 0 ? row.held : row.live * row.size);
    json.field("resident", row.resident);
    json.field("allocated", row.allocated).field("freed", row.freed);
    json.field("sampled", row.sampled).field("requested", row.requested);
    json.end();
  }
  json.end();
}

void write_threads(Json& json, const Figures& all) noexcept {
  json.array("threads");
  const ThreadClassRow* of_class = all.thread_classes.begin();
  for (const ThreadRow& row : all.threads) {
    json.object();
    json.field("domain", row.domain).field("thread", row.thread).field("name", row.name);
    json.field("live", row.live).field("blocks", row.blocks).field("peak", row.peak);
    json.field("cached", row.cached).field("allocated", row.allocated);
    json.field("allocated_blocks", row.allocated_blocks).field("freed_blocks", row.freed_blocks);
    json.array("classes");
    for (; of_class != all.thread_classes.end() && of_class->domain == row.domain; ++of_class) {
      json.array().value(of_class->size).value(of_class->blocks).end();
    }
    json.end().end();
  }
  json.end();
}

// None where there is one node.
void write_nodes(Json& json, const Figures& all) noexcept {
  json.array("nodes");
  for (const allod_node_t& row : all.nodes) {
    if (all.nodes.size() < 2) break;
    json.object().field("node", row.node).field("used", std::uint64_t{row.used});
    json.field("dirty", std::uint64_t{row.dirty}).field("clean", std::uint64_t{row.clean}).end();
  }
  json.end();
}

void write_heaps(Json& json, const Figures& all) noexcept {
  json.array("heaps");
  for (const allod_heap_row_t& row : all.heaps) {
    const allod_heap_stats_t& figures = row.figures;
    json.object();
    json.field("id", row.id).field("name", row.name);
    json.field("live", figures.live).field("live_blocks", figures.live_blocks);
    json.field("peak_live", figures.peak_live).field("held", figures.held);
    json.field("limit", figures.limit).field("refused", figures.refused);
    json.end();
  }
  json.end();
}

void write_sum(Json& json, const char* name, const allod_profile_sum_t& sum) noexcept {
  json.object(name);
  json.field("bytes", sum.bytes).field("blocks", sum.blocks).field("requested", sum.requested);
  json.end();
}

void write_profile(Json& json, const Figures& all) noexcept {
  const allod_profile_summary_t& profile = all.profile;
  json.object("profile");
  json.field("available", has_profile());
  json.field("interval", std::uint64_t{profile.interval});
  json.field("stacks", profile.stacks).field("samples", profile.live_samples);
  json.field("total_samples", profile.total_samples).field("lost", profile.lost_samples);
  json.field("since_ms", profile.since_ms).field("peak_age_ms", profile.peak_age_ms);
  write_sum(json, "live", profile.live);
  write_sum(json, "peak", profile.peak);
  write_sum(json, "total", profile.total);
  json.array("lifetimes");
  for (const allod_profile_sum_t& sum : profile.lifetimes) {
    json.array().value(sum.bytes).value(sum.blocks).end();
  }
  json.end();
  json.array("moments");
  for (std::size_t i = 0; i < moment_count(); ++i) json.value(moment(i).at_ms);
  json.end().end();
}

void write_history(Json& json, const History& history, std::uint64_t since,
                   std::uint64_t thinned) noexcept {
  json.object("history");
  json.field("thinned", history.thinned());
  json.array("fields");
  for (const char* name :
       {"number", "at_ms", "resident", "live", "live_blocks", "held", "cached", "free_in_slabs",
        "dirty", "metadata", "faults", "remote_frees", "purged", "reported"}) {
    json.value(name);
  }
  json.end().array("points");
  for (const Point& point : history.points()) {
    if (thinned == history.thinned() && point.number <= since) continue;
    static_assert(sizeof(Point) == 14 * sizeof(std::uint64_t));
    std::uint64_t values[14];
    memcpy(values, &point, sizeof values);
    json.array();
    for (const std::uint64_t value : values) json.value(value);
    json.end();
  }
  json.end().array("marks");
  for (const Mark& mark : history.marks()) {
    json.object().field("at_ms", mark.at_ms).field("label", mark.label).end();
  }
  json.end().end();
}

}  // namespace

bool write_state(Server& server, evbuffer* to, std::uint64_t since,
                 std::uint64_t thinned) noexcept {
  const Figures* const all = server.figures();
  if (all == nullptr) return false;
  Json json{to};
  json.object();
  json.field("gathered_ms", server.gathered_ms());
  write_process(json, server);
  write_now(json, server, *all);
  write_conclusions(json, *all, server.trends());
  write_classes(json, *all);
  write_threads(json, *all);
  write_heaps(json, *all);
  write_nodes(json, *all);
  write_profile(json, *all);
  write_history(json, server.history(), since, thinned);
  json.end();
  return json.finish();
}

bool write_map(Server& server, evbuffer* to) noexcept {
  const Figures* const all = server.map();
  if (all == nullptr) return false;
  Json json{to};
  json.object();
  json.array("fields");
  for (const char* name :
       {"address", "bytes", "kind", "owner", "size", "blocks", "free", "resident"}) {
    json.value(name);
  }
  json.end().array("spans");
  for (std::size_t i = 0; i < all->spans.size(); ++i) {
    const allod_span_t& span = all->spans[i];
    char address[24];
    snprintf(address, sizeof address, "0x%zx", span.address);
    json.array().value(address).value(std::uint64_t{span.bytes}).value(span.kind);
    json.value(span.owner).value(span.block_bytes).value(span.blocks).value(span.free);
    json.value(std::uint64_t{all->resident[i]}).end();
  }
  json.end().end();
  return json.finish();
}

}  // namespace allod::live
