#include "findings.hpp"

#include <algorithm>

namespace allod::live {

namespace {

// Parts of the resident memory matter from these on.
constexpr std::uint64_t kSmallPart = std::uint64_t{8} << 20;
constexpr std::uint64_t kShareOfResident = 4;  // one of
constexpr std::uint64_t kShareOfForeign = 3;   // one of
// Growth matters if an hour adds this, and this share of what is there.
constexpr std::uint64_t kSmallGrowth = std::uint64_t{4} << 20;
constexpr std::uint64_t kShareOfGrowth = 100;  // one of

std::uint64_t added_in_an_hour(const Trend& trend) noexcept {
  return trend.is_sure() && trend.rate > 0 ? static_cast<std::uint64_t>(trend.rate * 60) : 0;
}
bool matters(std::uint64_t growth, std::uint64_t whole) noexcept {
  return growth >= std::max(kSmallGrowth, whole / kShareOfGrowth);
}

// Whether one figure grows and the other does not, over the same time.
bool is_apart(const Trend& one, const Trend& other) noexcept {
  constexpr std::uint64_t kReadings = 3'000;
  return one.low > other.high && one.span_ms <= other.span_ms + kReadings;
}

}  // namespace

Findings::Findings(const Figures& all, const Trends& trends) noexcept {
  const std::uint64_t live = all.stats.live;
  const std::uint64_t resident = all.process.resident;
  const std::uint64_t more_live = added_in_an_hour(trends.live);
  const std::uint64_t more_resident = added_in_an_hour(trends.resident);
  const std::uint64_t more_held = added_in_an_hour(trends.held);
  if (matters(more_live, live)) {
    add({"growth", "leak-suspects", more_live, more_live > live});
  } else if (matters(more_resident, resident) && is_apart(trends.resident, trends.live)) {
    const bool held = matters(more_held, resident);
    add({"growth_elsewhere", held ? "fragmentation" : "waterfall", more_resident,
         more_resident > resident});
  }
  const Residency& parts = all.residency;
  const auto add_part = [&](const char* what, const char* panel, std::uint64_t bytes,
                            std::uint64_t share) {
    if (bytes >= kSmallPart && bytes >= resident / share) add({what, panel, bytes, false});
  };
  add_part("not_ours", "waterfall", parts.not_ours, kShareOfForeign);
  add_part("free_in_slabs", "fragmentation", parts.free_in_slabs, kShareOfResident);
  add_part("dirty", "waterfall", parts.dirty, kShareOfResident);
  add_part("cached", "threads", parts.cached, kShareOfResident);
  std::sort(all_, all_ + count_,
            [](const Finding& a, const Finding& b) { return a.bytes > b.bytes; });
}

}  // namespace allod::live
