// Names of functions as rows show them: short, and those that only pass allocations on.
#pragma once

#include <cstddef>
#include <string_view>

namespace allod::live {

// A demangled name without parameters, template arguments and return type; cut where it is longer.
class ShortName {
 public:
  explicit ShortName(std::string_view full) noexcept;
  [[nodiscard]] std::string_view text() const noexcept { return {text_, length_}; }

 private:
  void add(std::string_view more) noexcept;
  std::size_t add_operator(std::string_view rest) noexcept;
  void drop_return_type() noexcept;

  char text_[400];
  std::size_t length_ = 0;
};

// Whether a function of this short name only passes allocations on:
// tools/allod/profile/wrappers.txt or ALLOD_LIVE_WRAPPERS name it.
[[nodiscard]] bool is_wrapper(std::string_view short_name) noexcept;
// The same with a list of the caller's: lines or words with commas between.
[[nodiscard]] bool is_listed(std::string_view short_name, std::string_view list) noexcept;

}  // namespace allod::live
