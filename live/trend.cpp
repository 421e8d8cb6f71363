#include "trend.hpp"

#include <algorithm>

namespace allod::live {

namespace {

// A line through fewer readings tells nothing.
constexpr std::size_t kFewest = 10;
constexpr std::size_t kFewestBesideBreak = 6;
// Two lines instead of one have to leave less than this part of the squares. For a random walk,
// which has no breaks, the best two leave about a third.
constexpr double kBreakPart = 0.15;
// The same for three lines.
constexpr double kTwoBreaksPart = 0.05;
constexpr std::size_t kFewestOlder = 3;
// Deviations below this are no reason for a break.
constexpr double kSmallBytes = 64 << 10;
// A process that was stopped for so long begins a new stretch.
constexpr double kGapSeconds = 30;
// Of the normal distribution, for 99 %.
constexpr double kSigmas = 2.576;

struct Points {
  double seconds[kTrendReadings];
  double bytes[kTrendReadings];
  std::size_t count = 0;
};

// Sums over a range of points, for a line by least squares.
struct Sums {
  double n = 0, t = 0, v = 0, tt = 0, tv = 0, vv = 0;

  void add(double time, double value) noexcept {
    n += 1;
    t += time;
    v += value;
    tt += time * time;
    tv += time * value;
    vv += value * value;
  }
  [[nodiscard]] Sums without(const Sums& other) const noexcept {
    return {n - other.n, t - other.t, v - other.v, tt - other.tt, tv - other.tv, vv - other.vv};
  }
  // The squares that the best line leaves.
  [[nodiscard]] double rest() const noexcept {
    const double along = tt - t * t / n;
    const double across = tv - t * v / n;
    const double all = vv - v * v / n;
    const double left = along > 0 ? all - across * across / along : all;
    return left > 0 ? left : 0;
  }
};

Points thinned(const Reading* readings, std::size_t count) noexcept {
  Points points;
  const std::size_t stride = (count + kTrendReadings - 1) / kTrendReadings;
  // Counted from the end: the newest reading is always there.
  const std::size_t kept = stride == 0 ? 0 : (count + stride - 1) / stride;
  for (std::size_t i = 0; i < kept; ++i) {
    const Reading& reading = readings[count - 1 - (kept - 1 - i) * stride];
    points.seconds[i] = static_cast<double>(reading.at_ms - readings[0].at_ms) / 1000;
    points.bytes[i] =
        static_cast<double>(reading.value) - static_cast<double>(readings[count - 1].value);
  }
  points.count = kept;
  return points;
}

// Sums over all points before each, so that those over any range are two of them.
class Ranges {
 public:
  explicit Ranges(const Points& points) noexcept {
    for (std::size_t i = 0; i < points.count; ++i) {
      before_[i + 1] = before_[i];
      before_[i + 1].add(points.seconds[i], points.bytes[i]);
    }
  }
  // The squares that the best line through points [from, to) leaves.
  [[nodiscard]] double rest(std::size_t from, std::size_t to) const noexcept {
    return before_[to].without(before_[from]).rest();
  }

 private:
  Sums before_[kTrendReadings + 1];
};

// The first point after the last of one or two distinct breaks behind `first`; `first` if there is
// none. Two, since one line through what precedes a break may be no better than one through all.
std::size_t after_break(const Ranges& ranges, std::size_t first, std::size_t count) noexcept {
  const double rest = ranges.rest(first, count);
  if (rest < kSmallBytes * kSmallBytes * static_cast<double>(count - first)) return first;
  std::size_t best = first;
  double least = kBreakPart * rest;
  for (std::size_t last = first + kFewestBesideBreak; last + kFewestBesideBreak <= count; ++last) {
    const double newest = ranges.rest(last, count);
    const double older = ranges.rest(first, last);
    if (newest + older < least) {
      least = newest + older;
      best = last;
    }
  }
  if (best != first) return best;
  least = kTwoBreaksPart * rest;
  for (std::size_t last = first + kFewestBesideBreak; last + kFewestBesideBreak <= count; ++last) {
    const double newest = ranges.rest(last, count);
    for (std::size_t other = first + kFewestOlder; other + kFewestOlder <= last; ++other) {
      const double all = newest + ranges.rest(first, other) + ranges.rest(other, last);
      if (all >= least) continue;
      least = all;
      best = last;
    }
  }
  return best;
}

std::size_t newest_stretch(const Points& points) noexcept {
  std::size_t first = 0;
  const double usual = points.seconds[points.count - 1] / static_cast<double>(points.count);
  for (std::size_t i = 1; i < points.count; ++i) {
    if (points.seconds[i] - points.seconds[i - 1] > kGapSeconds + 4 * usual) first = i;
  }
  const Ranges ranges{points};
  while (points.count - first >= 2 * kFewestBesideBreak) {
    const std::size_t next = after_break(ranges, first, points.count);
    if (next == first) break;
    first = next;
  }
  return first;
}

// By how much dependence widens the interval: the square root of the correction of the variance.
double widening(const Points& points, std::size_t first, double slope) noexcept {
  const std::size_t n = points.count - first;
  const auto deviation = [&](std::size_t i) { return points.bytes[i] - slope * points.seconds[i]; };
  double mean = 0;
  for (std::size_t i = first; i < points.count; ++i) mean += deviation(i) / static_cast<double>(n);
  double squares = 0;
  double products = 0;
  for (std::size_t i = first; i < points.count; ++i) {
    const double here = deviation(i) - mean;
    squares += here * here;
    if (i > first) products += here * (deviation(i - 1) - mean);
  }
  if (squares <= 0 || products <= 0) return 1;
  const double most = 1 - 2 / static_cast<double>(n);
  const double correlation = std::min(products / squares, most);
  return square_root((1 + correlation) / (1 - correlation));
}

}  // namespace

double square_root(double x) noexcept {
  if (x <= 0) return 0;
  double guess = x < 1 ? 1 : x;
  // Newton's method; from above, it approaches the root without passing it.
  for (int i = 0; i < 200; ++i) {
    const double next = (guess + x / guess) / 2;
    if (next >= guess) break;
    guess = next;
  }
  return guess;
}

Trend trend_of(const Reading* readings, std::size_t count) noexcept {
  Trend trend;
  if (count < kFewest) return trend;
  const Points points = thinned(readings, count);
  const std::size_t first = newest_stretch(points);
  const std::size_t n = points.count - first;
  if (n < kFewest) return trend;
  double slopes[kTrendReadings * (kTrendReadings - 1) / 2];
  std::size_t pairs = 0;
  for (std::size_t i = first; i < points.count; ++i) {
    for (std::size_t k = i + 1; k < points.count; ++k) {
      const double passed = points.seconds[k] - points.seconds[i];
      if (passed > 0) slopes[pairs++] = (points.bytes[k] - points.bytes[i]) / passed;
    }
  }
  if (pairs < kFewest) return trend;
  std::sort(slopes, slopes + pairs);
  const double slope = (slopes[pairs / 2] + slopes[(pairs - 1) / 2]) / 2;
  const double size = static_cast<double>(n);
  const double deviation = square_root(size * (size - 1) * (2 * size + 5) / 18);
  const double half = kSigmas * deviation * widening(points, first, slope) / 2;
  const double middle = static_cast<double>(pairs - 1) / 2;
  const auto from = static_cast<std::size_t>(std::max(0.0, middle - half));
  const auto to =
      static_cast<std::size_t>(std::min(static_cast<double>(pairs - 1), middle + half + 0.5));
  trend.rate = slope * 60;
  trend.low = slopes[from] * 60;
  trend.high = slopes[to] * 60;
  trend.span_ms =
      static_cast<std::uint64_t>((points.seconds[points.count - 1] - points.seconds[first]) * 1000);
  return trend;
}

}  // namespace allod::live
