// What the server remembers: figures over time, the greatest ones, and marks.
#pragma once

#include "figures.hpp"

namespace allod::live {

// One moment of the timeline; bytes and counts.
struct Point {
  std::uint64_t number;  // grows by one from point to point
  std::uint64_t at_ms;   // of the wall clock
  std::uint64_t resident;
  std::uint64_t live;
  std::uint64_t live_blocks;
  std::uint64_t held;  // by Allod: used, kept and for its records
  std::uint64_t cached;
  std::uint64_t free_in_slabs;
  std::uint64_t dirty;
  std::uint64_t metadata;
  std::uint64_t faults;
  std::uint64_t remote_frees;
  std::uint64_t purged;
  std::uint64_t reported;  // by allocators of the program
};

struct Mark {
  std::uint64_t at_ms;
  char label[64];
};

[[nodiscard]] Mark mark_now(const char* label) noexcept;

class History {
 public:
  // One more point. When there are too many, every second one goes: the whole life of a process
  // stays in sight, and its past gets coarser.
  void add(const Figures& figures, std::uint64_t reported) noexcept;
  void mark(const Mark& mark) noexcept;
  // Raises the peaks of the process.
  void see(const Figures& figures) noexcept;
  // Raises the rows' peaks to what was seen before, and remembers them.
  void raise_peaks(Table<ThreadRow>& threads) noexcept;
  // Peaks begin anew.
  void reset() noexcept;

  [[nodiscard]] const Table<Point>& points() const noexcept { return points_; }
  [[nodiscard]] const Table<Mark>& marks() const noexcept { return marks_; }
  [[nodiscard]] std::uint64_t peak_resident() const noexcept { return peak_resident_; }
  [[nodiscard]] std::uint64_t peak_live() const noexcept { return peak_live_; }
  // Which points were dropped last: what a page holds from before has to be fetched anew.
  [[nodiscard]] std::uint64_t thinned() const noexcept { return thinned_; }

 private:
  static constexpr std::size_t kMostPoints = 1800;
  static constexpr std::size_t kMostMarks = 100;
  struct Peak {
    std::uint64_t owner;
    std::uint64_t bytes;
  };

  Table<Point> points_;
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
