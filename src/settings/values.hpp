// Parsers of option values. They return false, and leave *value alone, if the text is invalid.
#pragma once

#include <cstdint>
#include <string_view>

namespace allod {

[[nodiscard]] inline bool parse_bool(std::string_view text, bool* value) noexcept {
  const bool yes = text == "1" || text == "yes" || text == "true" || text == "on";
  const bool no = text == "0" || text == "no" || text == "false" || text == "off";
  if (yes || no) *value = yes;
  return yes || no;
}

[[nodiscard]] inline bool parse_number(std::string_view text, std::int64_t* value) noexcept {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 18) return false;
  std::int64_t number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    number = number * 10 + (digit - '0');
  }
  *value = negative ? -number : number;
  return true;
}

template <class T>
[[nodiscard]] bool parse_within(std::string_view text, std::int64_t least, std::int64_t most,
                                T* value) noexcept {
  std::int64_t number = 0;
  if (!parse_number(text, &number) || number < least || number > most) return false;
  *value = static_cast<T>(number);
  return true;
}

[[nodiscard]] inline bool parse_size(std::string_view text, std::size_t* value) noexcept {
  unsigned shift = 0;
  bool unit_must_follow = false;
  for (std::string_view end : {"iB", "B"}) {
    if (text.size() > end.size() && text.ends_with(end)) {
      text.remove_suffix(end.size());
      unit_must_follow = end == "iB";
      break;
    }
  }
  if (!text.empty()) {
    constexpr std::string_view kUnits = "KMGT";
    const char last = static_cast<char>(text.back() & ~0x20);
    const std::size_t unit = kUnits.find(last);
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  if (unit_must_follow && shift == 0) return false;
  std::int64_t number = 0;
  if (!parse_number(text, &number) || number < 0) return false;
  const auto size = static_cast<std::size_t>(number);
  if ((size << shift) >> shift != size) return false;
  *value = size << shift;
  return true;
}

}  // namespace allod
