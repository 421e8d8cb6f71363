// The options of the heap that there are on every system: takers of their values, which return
// false, and change nothing, if the text is invalid; and what a container makes of them. The heap's
// options are `heap` in the settings.
#pragma once

#include <algorithm>

#include "allod/heap/options.hpp"
#include "settings/values.hpp"

namespace allod {

template <class Settings>
[[nodiscard]] bool take_foreign_free(Settings& settings, std::string_view value) noexcept {
  if (value != "ignore" && value != "report") return false;
  settings.heap.report_foreign = value == "report";
  return true;
}
template <class Settings>
[[nodiscard]] bool take_purge_delay(Settings& settings, std::string_view value) noexcept {
  return parse_within(value, -1, 0x7fffffff, &settings.heap.purge_delay_ms);
}
template <class Settings>
[[nodiscard]] bool take_purge_budget(Settings& settings, std::string_view value) noexcept {
  if (!parse_size(value, &settings.heap.purge_budget)) return false;
  settings.heap.most_below_peak = 0;
  settings.has_purge_budget = true;
  return true;
}
template <class Settings>
[[nodiscard]] bool take_purge_thread(Settings& settings, std::string_view value) noexcept {
  return parse_bool(value, &settings.heap.purge_thread);
}
template <class Settings>
[[nodiscard]] bool take_processors(Settings& settings, std::string_view value) noexcept {
  return parse_within(value, 1, 1024, &settings.heap.processors);
}
template <class Settings>
[[nodiscard]] bool take_region_size(Settings& settings, std::string_view value) noexcept {
  constexpr auto kMost = static_cast<std::size_t>(std::uint64_t{kAddressesAbound ? 64 : 1} << 30);
  std::size_t bytes = 0;
  if (!parse_size(value, &bytes) || bytes < std::size_t{1} << 20 || bytes > kMost) return false;
  settings.heap.region_bytes = bytes;
  return true;
}
template <class Settings>
[[nodiscard]] bool take_magazine_bytes(Settings& settings, std::string_view value) noexcept {
  std::size_t bytes = 0;
  if (!parse_size(value, &bytes) || bytes > std::size_t{16} << 20) return false;
  settings.heap.magazine_bytes = bytes;
  return true;
}

// Of a container's memory, a share may stay free.
inline void limit_kept_memory(heap::HeapOptions& options, std::size_t limit) noexcept {
  constexpr std::size_t kShare = 16;
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  const std::size_t share = std::max(limit / kShare, kLeast);
  options.most_below_peak = share;
  options.purge_budget = std::min(options.purge_budget, share);
}

}  // namespace allod
