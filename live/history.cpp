#include "history.hpp"

#include <algorithm>

namespace allod::live {

void History::add(const Figures& figures, std::uint64_t reported) noexcept {
  const allod_stats_t& stats = figures.stats;
  see(figures);
  const Point now{next_,
                  wall_clock_ms(),
                  figures.process.resident,
                  stats.live,
                  stats.live_blocks,
                  stats.live + stats.cached + stats.free_in_slabs + stats.dirty + stats.metadata,
                  stats.cached,
                  stats.free_in_slabs,
                  stats.dirty,
                  stats.metadata,
                  figures.process.minor_faults + figures.process.major_faults,
                  stats.remote_frees,
                  stats.purged,
                  reported};
  if (recent_.size() == kRecent) recent_.remove(0);
  static_cast<void>(recent_.push(now));
  if (ticks_++ % stride_ != 0) return;
  if (points_.size() == kMostPoints) {
    for (std::size_t i = 0; i < kMostPoints / 2; ++i) points_[i] = points_[2 * i];
    while (points_.size() > kMostPoints / 2) points_.remove(points_.size() - 1);
    stride_ *= 2;
    ++thinned_;
  }
  ++next_;
  static_cast<void>(points_.push(now));
}

Mark mark_now(const char* label) noexcept {
  Mark mark{};
  mark.at_ms = wall_clock_ms();
  strncpy(mark.label, label, sizeof mark.label - 1);
  return mark;
}

void History::mark(const Mark& mark) noexcept {
  if (marks_.size() == kMostMarks) marks_.remove(0);
  static_cast<void>(marks_.push(mark));
}

void History::see(const Figures& figures) noexcept {
  peak_resident_ = std::max(peak_resident_, figures.process.resident);
  peak_live_ = std::max<std::uint64_t>(peak_live_, figures.stats.live);
}

void History::raise_peaks(Table<ThreadRow>& threads) noexcept {
  for (ThreadRow& row : threads) {
    const std::uint64_t owner = std::uint64_t{row.domain} << 32 | row.thread;
    Peak* const known = std::find_if(peaks_.begin(), peaks_.end(),
                                     [&](const Peak& peak) { return peak.owner == owner; });
    row.peak = row.live;
    if (known == peaks_.end()) {
      static_cast<void>(peaks_.push({owner, row.live}));
    } else {
      known->bytes = std::max(known->bytes, row.live);
      row.peak = known->bytes;
    }
  }
}

Trends History::trends() const noexcept {
  return {trend(&Point::live), trend(&Point::resident), trend(&Point::held)};
}

Trend History::trend(std::uint64_t Point::* field) const noexcept {
  Reading readings[kRecent];
  std::size_t count = 0;
  for (const Point& point : recent_) readings[count++] = {point.at_ms, point.*field};
  const Trend recent = trend_of(readings, count);
  if (recent.is_sure() || recent.span_ms == 0) return recent;
  // A slow trend hides in the noise of minutes. It is told only if these do not contradict it.
  count = 0;
  const std::size_t stride = points_.size() / kRecent + 1;
  for (std::size_t i = (points_.size() + stride - 1) % stride; i < points_.size(); i += stride) {
    readings[count++] = {points_[i].at_ms, points_[i].*field};
  }
  const Trend whole = trend_of(readings, count);
  constexpr double kUnseen = 1 << 20;
  const double minutes = static_cast<double>(recent.span_ms) / 60'000;
  const double added = (whole.rate < 0 ? -whole.rate : whole.rate) * minutes;
  const bool agrees = added < kUnseen || (recent.low <= whole.rate && whole.rate <= recent.high);
  return whole.is_sure() && whole.span_ms > recent.span_ms && agrees ? whole : recent;
}

void History::reset() noexcept {
  peaks_.clear();
  peak_resident_ = 0;
  peak_live_ = 0;
}

}  // namespace allod::live
