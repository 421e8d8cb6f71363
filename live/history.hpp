// The server's memory: figures over time, peaks, and marks.
#pragma once

#include "figures.hpp"
#include "trend.hpp"

namespace allod::live {

// A point of the timeline; bytes and counts.
struct Point {
  std::uint64_t number;  // consecutive
  std::uint64_t at_ms;   // wall clock
  std::uint64_t resident;
  std::uint64_t live;
  std::uint64_t live_blocks;
  std::uint64_t held;  // by Allod: in use, free and metadata
  std::uint64_t cached;
  std::uint64_t free_in_slabs;
  std::uint64_t dirty;
  std::uint64_t metadata;
  std::uint64_t faults;
  std::uint64_t remote_frees;
  std::uint64_t purged;
  std::uint64_t reported;  // by the program's own allocators
};

struct Mark {
  std::uint64_t at_ms;
  char label[64];
};

// Trends of the figures that findings are about.
struct Trends {
  Trend live;
  Trend resident;
  Trend held;
};

[[nodiscard]] Mark mark_now(const char* label) noexcept;

class History {
 public:
  // Adds a point. When full, drops every second one, so that the process's whole life remains, in
  // lower resolution.
  void add(const Figures& figures, std::uint64_t reported) noexcept;
  void mark(const Mark& mark) noexcept;
  // Updates the peaks of the process.
  void see(const Figures& figures) noexcept;
  // Updates the peaks of threads, and writes them to the rows.
  void raise_peaks(Table<ThreadRow>& threads) noexcept;
  // Resets the peaks.
  void reset() noexcept;
  // Of the newest minutes; where these tell nothing, of the whole timeline.
  [[nodiscard]] Trends trends() const noexcept;

  [[nodiscard]] const Table<Point>& points() const noexcept { return points_; }
  [[nodiscard]] const Table<Mark>& marks() const noexcept { return marks_; }
  [[nodiscard]] std::uint64_t peak_resident() const noexcept { return peak_resident_; }
  [[nodiscard]] std::uint64_t peak_live() const noexcept { return peak_live_; }
  // How often points were dropped. A page that has an older number must fetch all points again.
  [[nodiscard]] std::uint64_t thinned() const noexcept { return thinned_; }

 private:
  static constexpr std::size_t kMostPoints = 1800;
  static constexpr std::size_t kMostMarks = 100;
  // Five minutes; not thinned, as the timeline is.
  static constexpr std::size_t kRecent = 300;
  struct Peak {
    std::uint64_t owner;
    std::uint64_t bytes;
  };

  [[nodiscard]] Trend trend(std::uint64_t Point::* field) const noexcept;

  Table<Point> points_;
  Table<Point> recent_;
  Table<Mark> marks_;
  Table<Peak> peaks_;
  std::uint64_t next_ = 1;
  std::uint64_t ticks_ = 0;
  std::uint64_t stride_ = 1;
  std::uint64_t thinned_ = 0;
  std::uint64_t peak_resident_ = 0;
  std::uint64_t peak_live_ = 0;
};

}  // namespace allod::live
