#include "names.hpp"

#include <algorithm>
#include <iterator>

#include "settings.hpp"

namespace allod::live {

// From page.S.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
extern const char allod_live_wrappers[];
extern const char allod_live_wrappers_end[];
}
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr std::string_view kOperator = "operator";
// std::string_view::substr() without its exception, which would need the C++ runtime.
std::string_view part_of(std::string_view text, std::size_t from,
                         std::size_t most = std::string_view::npos) noexcept {
  if (from > text.size()) return {};
  const std::size_t rest = text.size() - from;
  return {text.data() + from, most < rest ? most : rest};
}

constexpr std::string_view kAnonymous = "(anonymous namespace)::";

bool is_part_of_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$';
}

// Rust appends "::h" and 16 digits to a name.
std::string_view without_hash(std::string_view name) noexcept {
  constexpr std::size_t kHash = 19;
  if (name.size() <= kHash || part_of(name, name.size() - kHash, 3) != "::h") return name;
  const std::string_view digits = part_of(name, name.size() - kHash + 3);
  return digits.find_first_not_of("0123456789abcdef") == digits.npos
             ? part_of(name, 0, name.size() - kHash)
             : name;
}

// The type of Rust's "<type as trait>::function", and what comes behind the bracket.
struct Qualified {
  std::string_view type;
  std::string_view rest;
};
Qualified split_qualified(std::string_view name) noexcept {
  std::size_t depth = 0;
  std::size_t type = name.npos;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (depth == 1 && type == name.npos && part_of(name, i, 4) == " as ") type = i;
    if (name[i] == '>' && (i == 0 || name[i - 1] != '-') && --depth == 0) {
      return {part_of(name, 1, std::min(type, i) - 1), part_of(name, i + 1)};
    }
  }
  return {{}, name};
}

// What CPython calls functions without a name of their own, and those within functions.
bool is_of_python(std::string_view name) noexcept {
  constexpr std::string_view kEnds[] = {"<module>",   "<lambda>",  "<listcomp>",
                                        "<dictcomp>", "<setcomp>", "<genexpr>"};
  if (name.find(".<locals>.") != name.npos) return true;
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [name](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

ShortName::ShortName(std::string_view full) noexcept {
  if (is_of_python(full)) {
    add(full);
    return;
  }
  std::string_view name = without_hash(full);
  if (!name.empty() && name[0] == '<') {
    const Qualified parts = split_qualified(name);
    if (!parts.type.empty()) add(ShortName{parts.type}.text());
    name = parts.rest;
  }
  std::size_t depth = 0;
  bool has_parameters = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (part_of(name, i, kAnonymous.size()) == kAnonymous) {
      i += kAnonymous.size() - 1;
      continue;
    }
    const bool begins = i == 0 || !is_part_of_name(name[i - 1]);
    if (depth == 0 && begins && part_of(name, i, kOperator.size()) == kOperator) {
      i += add_operator(part_of(name, i)) - 1;
      continue;
    }
    const char c = name[i];
    if (c == '<' || c == '(') {
      has_parameters = true;
      ++depth;
    } else if ((c == '>' || c == ')') && depth > 0) {
      --depth;
    } else if (depth == 0 && c == ' ' && part_of(name, i, 2) == " [") {
      break;
    } else if (depth == 0) {
      add({&c, 1});
    }
  }
  while (length_ > 0 && text_[length_ - 1] == ' ') --length_;
  for (const std::string_view end : {" const", " &&", " &"}) {
    if (text().ends_with(end)) length_ -= end.size();
  }
  if (has_parameters) drop_return_type();
  if (length_ == 0) add(full);
}

void ShortName::add(std::string_view more) noexcept {
  const std::size_t count = std::min(more.size(), sizeof text_ - length_);
  std::copy_n(more.begin(), count, text_ + length_);
  length_ += count;
}

// Returns the length of the operator's name.
std::size_t ShortName::add_operator(std::string_view rest) noexcept {
  std::size_t length = kOperator.size();
  if (part_of(rest, length, 2) == "()") {
    length += 2;
  } else {
    const std::size_t end = rest.find_first_not_of("<>=!+-*/%&|^~,[]", length);
    length = end == rest.npos ? rest.size() : end;
    // Behind the symbol, template arguments may begin.
    if (part_of(rest, kOperator.size(), length - kOperator.size()) == "<<<" ||
        part_of(rest, kOperator.size(), length - kOperator.size()) == "==<") {
      --length;
    }
  }
  add(part_of(rest, 0, length));
  return length;
}

// Names of functions have no spaces, but for some operators.
void ShortName::drop_return_type() noexcept {
  const std::string_view name = text();
  const std::size_t until = std::min(name.find(kOperator), name.size());
  const std::size_t space = part_of(name, 0, until).rfind(' ');
  if (space == name.npos) return;
  length_ -= space + 1;
  std::copy_n(text_ + space + 1, length_, text_);
}

bool is_listed(std::string_view name, std::string_view list) noexcept {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of("\n,"), list.size());
    std::string_view entry = part_of(list, 0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (entry.empty() || entry[0] == '#') continue;
    if (entry.back() == '*') {
      entry.remove_suffix(1);
      if (name.starts_with(entry)) return true;
    } else if (name == entry) {
      return true;
    }
  }
  return false;
}

bool is_wrapper(std::string_view name) noexcept {
  const auto size = static_cast<std::size_t>(allod_live_wrappers_end - allod_live_wrappers);
  if (is_listed(name, {allod_live_wrappers, size})) return true;
  return is_listed(name, settings().wrappers);
}

}  // namespace allod::live
