// What a person should know first: growth, and memory that does not serve the program.
#pragma once

#include "history.hpp"

namespace allod::live {

struct Finding {
  const char* what;     // a word for machines
  const char* panel;    // of the page, that shows it
  std::uint64_t bytes;  // that it is about; of growth, those that an hour adds
  bool is_alarm;        // memory doubles within an hour
};

class Findings {
 public:
  Findings(const Figures& all, const Trends& trends) noexcept;
  // Most bytes first.
  [[nodiscard]] const Finding* begin() const noexcept { return all_; }
  [[nodiscard]] const Finding* end() const noexcept { return all_ + count_; }

 private:
  static constexpr std::size_t kMost = 6;
  void add(const Finding& finding) noexcept { all_[count_++] = finding; }

  Finding all_[kMost] = {};
  std::size_t count_ = 0;
};

}  // namespace allod::live
