// The environment of Windows.
#include "portable/system.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
const wchar_t* allod_win_environment() noexcept __asm__("GetEnvironmentStringsW");
int allod_win_free_environment(const wchar_t* strings) noexcept __asm__("FreeEnvironmentStringsW");
// NOLINTEND(readability-identifier-naming)
}

namespace allod::portable {

namespace {

using Visit = void (*)(std::string_view name, std::string_view value) noexcept;

// Windows compares names of variables without regard to case.
[[nodiscard]] char upper(wchar_t letter) noexcept {
  if (letter > 0x7e || letter < 0x20) return '?';
  const auto plain = static_cast<char>(letter);
  return plain >= 'a' && plain <= 'z' ? static_cast<char>(plain - 0x20) : plain;
}

void visit_if_ours(const wchar_t* variable, std::size_t length, Visit visit) noexcept {
  char name[64];
  char value[256];
  std::size_t at = 0;
  for (; at < length && variable[at] != L'='; ++at) {
    if (at == sizeof name) return;
    name[at] = upper(variable[at]);
  }
  const std::string_view whole{name, at};
  if (at == length || !whole.starts_with(kPrefix)) return;
  std::size_t filled = 0;
  for (++at; at < length && filled < sizeof value; ++at) {
    value[filled++] = variable[at] <= 0x7e ? static_cast<char>(variable[at]) : '?';
  }
  visit({name + kPrefix.size(), whole.size() - kPrefix.size()}, {value, filled});
}

}  // namespace

std::string_view system_name() noexcept { return "Windows"; }

void for_each_variable(Visit visit) noexcept {
  const wchar_t* const all = allod_win_environment();
  if (all == nullptr) return;
  for (const wchar_t* variable = all; *variable != 0;) {
    std::size_t length = 0;
    while (variable[length] != 0) ++length;
    visit_if_ours(variable, length, visit);
    variable += length + 1;
  }
  allod_win_free_environment(all);
}

}  // namespace allod::portable
