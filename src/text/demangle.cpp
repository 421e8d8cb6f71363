#include "text/demangle.hpp"

#include <cstdint>

namespace allod {

namespace {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_upper(char c) noexcept { return c >= 'A' && c <= 'Z'; }
constexpr int hex_digit(char c) noexcept {
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The names follow a grammar, in which a later part may refer to an earlier one. Each function
// reads a part and writes it; false: it is none.
class RustName {
 public:
  RustName(std::string_view name, Bounded& to) noexcept : name_{name}, to_{to} {}

  // The instantiating crate and the suffixes of compilers may follow.
  [[nodiscard]] bool read() noexcept { return path(true) && is_sound_; }

 private:
  struct Identifier {
    std::uint64_t number;
    std::string_view name;
    bool is_punycode;
  };

  [[nodiscard]] char peek() const noexcept { return at_ < name_.size() ? name_[at_] : '\0'; }
  char take() noexcept {
    const char c = peek();
    ++at_;
    return c;
  }
  bool take_if(char c) noexcept {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void write(std::string_view text) noexcept {
    if (writes_) to_.add(text);
  }

  // Digits, letters of both cases, and an underscore at the end; "_" is 0.
  [[nodiscard]] std::uint64_t base_62() noexcept {
    if (take_if('_')) return 0;
    std::uint64_t number = 0;
    for (char c = take(); c != '_'; c = take()) {
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'z' ? c - 'a' + 10
                        : is_upper(c)          ? c - 'A' + 36
                                               : -1;
      if (digit < 0) {
        is_sound_ = false;
        return 0;
      }
      number = number * 62 + static_cast<std::uint64_t>(digit);
    }
    return number + 1;
  }
  [[nodiscard]] std::uint64_t tagged(char tag) noexcept { return take_if(tag) ? base_62() + 1 : 0; }
  [[nodiscard]] Identifier identifier() noexcept {
    const std::uint64_t number = tagged('s');
    const bool is_punycode = take_if('u');
    std::size_t length = 0;
    if (!is_digit(peek())) is_sound_ = false;
    if (!take_if('0')) {
      while (is_digit(peek()) && length < name_.size()) {
        length = length * 10 + static_cast<std::size_t>(take() - '0');
      }
    }
    take_if('_');
    if (at_ > name_.size() || length > name_.size() - at_) {
      is_sound_ = false;
      return {};
    }
    const std::string_view name{name_.data() + at_, length};
    at_ += length;
    return {number, name, is_punycode};
  }
  void write(const Identifier& it) noexcept {
    if (it.is_punycode) write("punycode{");
    write(it.name);
    if (it.is_punycode) write("}");
  }

  // Reads a part that was there before, by `read`.
  template <class Read>
  [[nodiscard]] bool back(Read&& read) noexcept {
    const std::size_t start = at_ - 1;
    const std::uint64_t place = base_62();
    if (!is_sound_ || place >= start) return false;
    if (!writes_) return true;
    const std::size_t behind = at_;
    at_ = static_cast<std::size_t>(place);
    const bool is_there = read();
    at_ = behind;
    return is_there;
  }

  // `is_value`: generic arguments have colons before them.
  [[nodiscard]] bool path(bool is_value) noexcept {
    if (++depth_ > kDeepest || ++steps_ > kMostSteps) return false;
    const bool is_there = path_of(take(), is_value);
    --depth_;
    return is_there && is_sound_;
  }
  [[nodiscard]] bool path_of(char kind, bool is_value) noexcept {
    switch (kind) {
      case 'C':
        write(identifier());
        return true;
      case 'N':
        return nested(is_value);
      case 'M':
      case 'X':
        return implementation(kind == 'X');
      case 'Y':
        return qualified(true);
      case 'I':
        return generic(is_value);
      case 'B':
        return back([&]() noexcept { return path(is_value); });
      default:
        return false;
    }
  }
  [[nodiscard]] bool nested(bool is_value) noexcept {
    const char space = take();
    if (!path(is_value)) return false;
    const Identifier inner = identifier();
    if (!is_upper(space)) {
      if (inner.name.empty()) return true;
      write("::");
      write(inner);
      return true;
    }
    write(space == 'C' ? "::{closure" : space == 'S' ? "::{shim" : "::{");
    if (!inner.name.empty()) write(":");
    write(inner);
    write("#");
    if (writes_) to_.add_number(inner.number);
    write("}");
    return true;
  }
  // Where it stands is read, and not written.
  [[nodiscard]] bool implementation(bool has_trait) noexcept {
    static_cast<void>(tagged('s'));
    const bool wrote = writes_;
    writes_ = false;
    const bool is_there = path(false);
    writes_ = wrote;
    return is_there && qualified(has_trait);
  }
  [[nodiscard]] bool qualified(bool has_trait) noexcept {
    write("<");
    if (!type()) return false;
    if (has_trait) {
      write(" as ");
      if (!path(false)) return false;
    }
    write(">");
    return true;
  }
  [[nodiscard]] bool generic(bool is_value) noexcept {
    if (!path(is_value)) return false;
    write(is_value ? "::<" : "<");
    for (bool is_first = true; !take_if('E'); is_first = false) {
      if (!is_first) write(", ");
      if (take_if('L')) {
        static_cast<void>(base_62());
        write("'_");
      } else if (take_if('K') ? !constant() : !type()) {
        return false;
      }
      if (!is_sound_) return false;
    }
    write(">");
    return true;
  }

  [[nodiscard]] static std::string_view basic(char c) noexcept {
    constexpr std::string_view kNames[] = {"i8",   "bool",  "char",  "f64", "str", "f32", "",
                                           "u8",   "isize", "usize", "",    "i32", "u32", "i128",
                                           "u128", "_",     "",      "",    "i16", "u16", "()",
                                           "...",  "",      "i64",   "u64", "!"};
    return c >= 'a' && c <= 'z' ? kNames[c - 'a'] : "";
  }
  [[nodiscard]] bool type() noexcept {
    if (++depth_ > kDeepest || ++steps_ > kMostSteps) return false;
    const bool is_there = type_of(take());
    --depth_;
    return is_there && is_sound_;
  }
  [[nodiscard]] bool type_of(char kind) noexcept {
    if (const std::string_view name = basic(kind); !name.empty()) {
      write(name);
      return true;
    }
    switch (kind) {
      case 'A':
        write("[");
        if (!type()) return false;
        write("; ");
        if (!constant()) return false;
        write("]");
        return true;
      case 'S':
        write("[");
        if (!type()) return false;
        write("]");
        return true;
      case 'T':
        return types("(", ")", true);
      case 'R':
      case 'Q':
        if (take_if('L')) static_cast<void>(base_62());
        write(kind == 'R' ? "&" : "&mut ");
        return type();
      case 'P':
        write("*const ");
        return type();
      case 'O':
        write("*mut ");
        return type();
      case 'F':
        return function();
      case 'D':
        return dynamic();
      case 'B':
        return back([&]() noexcept { return type(); });
      default:
        --at_;
        return path(false);
    }
  }
  // Up to the letter E.
  [[nodiscard]] bool types(std::string_view open, std::string_view close, bool is_tuple) noexcept {
    write(open);
    unsigned count = 0;
    for (; !take_if('E'); ++count) {
      if (count > 0) write(", ");
      if (!type()) return false;
    }
    if (is_tuple && count == 1) write(",");
    write(close);
    return true;
  }
  [[nodiscard]] bool function() noexcept {
    static_cast<void>(tagged('G'));
    if (take_if('U')) write("unsafe ");
    if (take_if('K')) {
      write("extern \"");
      if (take_if('C')) {
        write("C");
      } else {
        write(identifier());
      }
      write("\" ");
    }
    if (!types("fn(", ")", false)) return false;
    if (take_if('u')) return true;
    write(" -> ");
    return type();
  }
  [[nodiscard]] bool dynamic() noexcept {
    static_cast<void>(tagged('G'));
    write("dyn ");
    for (bool is_first = true; !take_if('E'); is_first = false) {
      if (!is_first) write(" + ");
      if (!path(false)) return false;
      while (take_if('p')) {
        write(", ");
        write(identifier());
        write(" = ");
        if (!type()) return false;
      }
    }
    if (!take_if('L')) return false;
    static_cast<void>(base_62());
    return true;
  }
  [[nodiscard]] bool constant() noexcept {
    if (take_if('B')) return back([&]() noexcept { return constant(); });
    if (take_if('p')) {
      write("_");
      return true;
    }
    const char kind = take();
    if (basic(kind).empty()) return false;
    if (take_if('n')) write("-");
    std::uint64_t number = 0;
    for (char c = take(); c != '_'; c = take()) {
      const int digit = hex_digit(c);
      if (digit < 0) return false;
      number = number << 4 | static_cast<unsigned>(digit);
    }
    if (kind == 'b') {
      write(number == 0 ? "false" : "true");
    } else if (writes_) {
      to_.add_number(number);
    }
    return true;
  }

  static constexpr unsigned kDeepest = 100;
  static constexpr unsigned kMostSteps = 10'000;

  std::string_view name_;  // behind the prefix, from where references count
  Bounded& to_;
  std::size_t at_ = 0;
  unsigned depth_ = 0;
  unsigned steps_ = 0;
  bool writes_ = true;
  bool is_sound_ = true;
};

struct Escape {
  std::string_view name;
  std::string_view text;
};
constexpr Escape kEscapes[] = {{"SP", "@"}, {"BP", "*"}, {"RF", "&"}, {"LT", "<"},
                               {"GT", ">"}, {"LP", "("}, {"RP", ")"}, {"C", ","}};

// What stands between two dollars. Empty if it is nothing known.
std::string_view escaped(std::string_view name, char* room) noexcept {
  for (const Escape& each : kEscapes) {
    if (name == each.name) return each.text;
  }
  if (name.size() != 3 || name[0] != 'u') return {};
  const int high = hex_digit(name[1]);
  const int low = hex_digit(name[2]);
  if (high < 2 || high > 7 || low < 0) return {};
  *room = static_cast<char>(high * 16 + low);
  return {room, 1};
}

}  // namespace

bool demangle_rust(std::string_view name, Bounded& to) noexcept {
  if (name.size() < 3 || name[0] != '_' || name[1] != 'R' || !is_upper(name[2])) return false;
  return RustName{{name.data() + 2, name.size() - 2}, to}.read();
}

bool decode_old_rust(std::string_view name, Bounded& to) noexcept {
  constexpr std::string_view kHash = "::h0123456789abcdef";
  if (name.size() <= kHash.size()) return false;
  const std::string_view hash{name.data() + name.size() - kHash.size(), kHash.size()};
  if (!hash.starts_with("::h") || hash.find_first_not_of("0123456789abcdef", 3) != hash.npos) {
    return false;
  }
  for (std::size_t at = 0; at < name.size(); ++at) {
    const std::string_view rest{name.data() + at, name.size() - at};
    const bool begins = at == 0 || name[at - 1] == ':';
    if (begins && rest.starts_with("_$")) continue;
    if (rest.starts_with("..")) {
      to.add("::");
      ++at;
      continue;
    }
    const std::size_t end = rest[0] == '$' ? rest.find('$', 1) : rest.npos;
    char room = 0;
    const std::string_view text =
        end == rest.npos ? std::string_view{} : escaped({rest.data() + 1, end - 1}, &room);
    if (text.empty()) {
      to.add({&rest[0], 1});
    } else {
      to.add(text);
      at += end;
    }
  }
  return true;
}

bool demangle_d(std::string_view name, Bounded& to) noexcept {
  if (!name.starts_with("_D") || name.size() < 4 || !is_digit(name[2])) return false;
  std::size_t at = 2;
  for (bool is_first = true; at < name.size() && is_digit(name[at]); is_first = false) {
    std::size_t length = 0;
    while (at < name.size() && is_digit(name[at]) && length < name.size()) {
      length = length * 10 + static_cast<std::size_t>(name[at++] - '0');
    }
    if (length == 0 || length > name.size() - at) return false;
    if (!is_first) to.add(".");
    to.add({name.data() + at, length});
    at += length;
  }
  return true;
}

}  // namespace allod
