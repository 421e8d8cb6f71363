#include "json.hpp"

namespace allod::live {

namespace {

// The length of the character of UTF-8 at the start of `text`, or 0 when that is none.
std::size_t character(std::string_view text) noexcept {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

Json& Json::write(std::string_view text) noexcept {
  out_ << "\"";
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    std::size_t length = character(text);
    if (length == 0) {
      out_ << "?";
      length = 1;
    } else if (c < 0x20 || c == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      const char code[] = {'\\', 'u', '0', '0', kDigits[c >> 4], kDigits[c & 15]};
      out_ << std::string_view{code, sizeof code};
    } else {
      if (c == '"' || c == '\\') out_ << "\\";
      out_ << text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  out_ << "\"";
  return *this;
}

}  // namespace allod::live
