#include "unwind/unwind_table.hpp"

namespace allod::unwind {

namespace {

// Reads beyond the end yield zero and clear `is_whole`.
class Reader {
 public:
  Reader(const unsigned char* begin, const unsigned char* end) noexcept : at_(begin), end_(end) {}

  [[nodiscard]] bool is_at_end() const noexcept { return at_ >= end_; }
  [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }
  [[nodiscard]] const unsigned char* at() const noexcept { return at_; }
  [[nodiscard]] const unsigned char* end() const noexcept { return end_; }

  template <class Number>
  Number fixed() noexcept {
    const unsigned char* const from = at_;
    return skip(sizeof(Number)) ? load<Number>(from) : Number{};
  }
  std::uint64_t varying() noexcept {
    std::uint64_t number = 0;
    unsigned shift = 0;
    unsigned char part = 0;
    do {
      part = fixed<unsigned char>();
      if (shift < 64) number |= std::uint64_t{part & 0x7fU} << shift;
      shift += 7;
    } while ((part & 0x80) != 0);
    is_negative_ = shift < 64 && (part & 0x40) != 0;
    shift_ = shift;
    return number;
  }
  std::int64_t varying_signed() noexcept {
    std::uint64_t number = varying();
    if (is_negative_) number |= ~std::uint64_t{0} << shift_;
    return static_cast<std::int64_t>(number);
  }
  Expression block() noexcept {
    const auto bytes = static_cast<std::size_t>(varying());
    const unsigned char* const code = at_;
    return skip(bytes) ? Expression{code, bytes} : Expression{};
  }
  bool skip(std::size_t bytes) noexcept {
    if (bytes <= static_cast<std::size_t>(end_ - at_)) {
      at_ += bytes;
      return true;
    }
    at_ = end_;
    is_whole_ = false;
    return false;
  }

 private:
  const unsigned char* at_;
  const unsigned char* end_;
  unsigned shift_ = 0;
  bool is_negative_ = false;
  bool is_whole_ = true;
};

// Pointer encodings of DWARF: format in the lower bits, base in the upper ones.
enum Encoding : unsigned char {
  kAbsolute = 0x00,
  kUnsigned2 = 0x02,
  kUnsigned4 = 0x03,
  kUnsigned8 = 0x04,
  kSigned2 = 0x0a,
  kSigned4 = 0x0b,
  kSigned8 = 0x0c,
  kFormat = 0x0f,
  kRelativeToItself = 0x10,
  kRelativeToTable = 0x30,
  kAligned = 0x50,
};

// The size of an encoded pointer, or 0 if it is not fixed.
std::size_t bytes_of(unsigned char encoding) noexcept {
  if (encoding == kAligned) return 0;
  switch (encoding & kFormat) {
    case kAbsolute:
    case kUnsigned8:
    case kSigned8:
      return 8;
    case kUnsigned4:
    case kSigned4:
      return 4;
    case kUnsigned2:
    case kSigned2:
      return 2;
    default:
      return 0;
  }
}

// Entries of the table: descriptions (FDE), and common parts (CIE). Four bytes hold the length.
const unsigned char* end_of(const unsigned char* entry) noexcept {
  return entry + 4 + load<std::uint32_t>(entry);
}
bool has_known_length(const unsigned char* entry) noexcept {
  constexpr std::uint32_t kLonger = 0xfffffff0;
  return load<std::uint32_t>(entry) < kLonger;
}
const unsigned char* common_part(const unsigned char* description) noexcept {
  return description + 4 - load<std::uint32_t>(description + 4);
}

struct Common {
  std::uint64_t code_unit = 1;
  std::int64_t data_unit = 1;
  unsigned char encoding = kAbsolute;
  bool has_further_data = false;
  bool is_signal = false;
  Reader instructions{nullptr, nullptr};
};

bool read_common(const unsigned char* entry, Common* common) noexcept {
  if (!has_known_length(entry)) return false;
  Reader in{entry + 8, end_of(entry)};
  const auto version = in.fixed<unsigned char>();
  if (version != 1 && version != 3) return false;
  const auto* const letters = reinterpret_cast<const char*>(in.at());
  if (!in.skip(strnlen(letters, static_cast<std::size_t>(in.end() - in.at())) + 1)) return false;
  common->code_unit = in.varying();
  common->data_unit = in.varying_signed();
  const std::uint64_t return_address = version == 1 ? in.fixed<unsigned char>() : in.varying();
  if (return_address != kRip) return false;
  common->has_further_data = *letters == 'z';
  if (common->has_further_data) {
    const Expression data = in.block();
    if (!in.is_whole()) return false;
    Reader further{data.code, data.code + data.bytes};
    for (const char* letter = letters + 1; *letter != 0; ++letter) {
      if (*letter == 'R') {
        common->encoding = further.fixed<unsigned char>();
      } else if (*letter == 'L') {
        further.skip(1);
      } else if (*letter == 'P') {
        const std::size_t bytes = bytes_of(further.fixed<unsigned char>());
        if (bytes == 0) return false;
        further.skip(bytes);
      } else if (*letter == 'S') {
        common->is_signal = true;
      } else {
        return false;
      }
    }
    if (!further.is_whole()) return false;
  } else if (*letters != 0) {
    return false;
  }
  common->instructions = in;
  return in.is_whole();
}

// Runs the instructions that build the rule for a place, from the function's start.
class Program {
 public:
  Program(const Common& common, Address function, Address place) noexcept
      : common_(common), location_(function), place_(place) {}

  // Stops at the end, or at the first instruction about code behind the place.
  bool run(Reader& in, const Rule& initial) noexcept {
    while (!in.is_at_end() && location_ <= place_) {
      if (!step(in, initial)) return false;
    }
    return in.is_whole();
  }
  [[nodiscard]] const Rule& rule() const noexcept { return rule_; }

 private:
  using Where = Saved::Where;

  enum Operation : unsigned char {
    kNothing = 0x00,
    kAdvance1 = 0x02,
    kAdvance2 = 0x03,
    kAdvance4 = 0x04,
    kOffsetExtended = 0x05,
    kRestoreExtended = 0x06,
    kUndefined = 0x07,
    kSame = 0x08,
    kRegister = 0x09,
    kRemember = 0x0a,
    kRestoreState = 0x0b,
    kDefineCfa = 0x0c,
    kDefineCfaRegister = 0x0d,
    kDefineCfaOffset = 0x0e,
    kDefineCfaExpression = 0x0f,
    kExpression = 0x10,
    kOffsetExtendedSigned = 0x11,
    kDefineCfaSigned = 0x12,
    kDefineCfaOffsetSigned = 0x13,
    kValueOffset = 0x14,
    kValueOffsetSigned = 0x15,
    kValueExpression = 0x16,
    kArgumentsSize = 0x2e,
    // The operand is in the lower six bits.
    kAdvance = 0x40,
    kOffset = 0x80,
    kRestore = 0xc0,
  };

  static Saved* saved(Rule& rule, std::uint64_t number) noexcept {
    return number == kRbp   ? &rule.rbp
           : number == kRsp ? &rule.rsp
           : number == kRip ? &rule.rip
                            : nullptr;
  }
  void set(std::uint64_t number, Where where, std::int64_t offset = 0,
           Expression expression = {}) noexcept {
    if (Saved* const which = saved(rule_, number)) *which = {where, offset, expression};
  }
  void restore(std::uint64_t number, const Rule& initial) noexcept {
    Rule source = initial;
    if (Saved* const which = saved(rule_, number)) *which = *saved(source, number);
  }
  void advance(std::uint64_t units) noexcept {
    location_ += static_cast<Address>(units * common_.code_unit);
  }
  std::int64_t scaled(std::uint64_t factor) const noexcept {
    return static_cast<std::int64_t>(factor) * common_.data_unit;
  }
  void define_cfa(std::uint64_t base, std::int64_t offset) noexcept {
    rule_.base = base;
    rule_.offset = offset;
    rule_.expression = {};
  }

  bool step(Reader& in, const Rule& initial) noexcept {
    const auto operation = in.fixed<unsigned char>();
    const unsigned operand = operation & 0x3fU;
    switch (operation & 0xc0) {
      case kAdvance:
        advance(operand);
        return true;
      case kOffset:
        set(operand, Where::at, scaled(in.varying()));
        return true;
      case kRestore:
        restore(operand, initial);
        return true;
      default:
        break;
    }
    switch (operation) {
      case kNothing:
        return true;
      case kAdvance1:
        advance(in.fixed<std::uint8_t>());
        return true;
      case kAdvance2:
        advance(in.fixed<std::uint16_t>());
        return true;
      case kAdvance4:
        advance(in.fixed<std::uint32_t>());
        return true;
      case kRestoreExtended:
        restore(in.varying(), initial);
        return true;
      case kUndefined:
        set(in.varying(), Where::unknown);
        return true;
      case kSame:
        set(in.varying(), Where::unchanged);
        return true;
      case kArgumentsSize:
        in.varying();
        return true;
      case kRemember:
        return remember();
      case kRestoreState:
        return recall();
      case kRegister:
        return move(in);
      default:
        return step_frame_address(operation, in) || step_place(operation, in);
    }
  }

  // Instructions about the canonical frame address.
  bool step_frame_address(unsigned char operation, Reader& in) noexcept {
    switch (operation) {
      case kDefineCfa: {
        const std::uint64_t base = in.varying();
        define_cfa(base, static_cast<std::int64_t>(in.varying()));
        return true;
      }
      case kDefineCfaSigned: {
        const std::uint64_t base = in.varying();
        define_cfa(base, in.varying_signed() * common_.data_unit);
        return true;
      }
      case kDefineCfaRegister:
        define_cfa(in.varying(), rule_.offset);
        return true;
      case kDefineCfaOffset:
        rule_.offset = static_cast<std::int64_t>(in.varying());
        return true;
      case kDefineCfaOffsetSigned:
        rule_.offset = in.varying_signed() * common_.data_unit;
        return true;
      case kDefineCfaExpression:
        rule_.expression = in.block();
        return true;
      default:
        return false;
    }
  }

  // Instructions about where a register is saved.
  bool step_place(unsigned char operation, Reader& in) noexcept {
    if (operation < kOffsetExtended || operation > kValueExpression) return false;
    const std::uint64_t number = in.varying();
    switch (operation) {
      case kOffsetExtended:
        set(number, Where::at, scaled(in.varying()));
        return true;
      case kValueOffset:
        set(number, Where::is, scaled(in.varying()));
        return true;
      case kOffsetExtendedSigned:
        set(number, Where::at, in.varying_signed() * common_.data_unit);
        return true;
      case kValueOffsetSigned:
        set(number, Where::is, in.varying_signed() * common_.data_unit);
        return true;
      case kExpression:
        set(number, Where::at_expression, 0, in.block());
        return true;
      case kValueExpression:
        set(number, Where::is_expression, 0, in.block());
        return true;
      default:
        return false;
    }
  }

  bool remember() noexcept {
    if (depth_ == kMostStates) return false;
    states_[depth_++] = rule_;
    return true;
  }
  bool recall() noexcept {
    if (depth_ == 0) return false;
    rule_ = states_[--depth_];
    return true;
  }
  // Saved in another register: not supported for the three registers that we follow.
  bool move(Reader& in) noexcept {
    const std::uint64_t number = in.varying();
    in.varying();
    return saved(rule_, number) == nullptr;
  }

  static constexpr unsigned kMostStates = 4;

  const Common& common_;
  Address location_;
  Address place_;
  Rule rule_;
  unsigned depth_ = 0;
  Rule states_[kMostStates];
};

// `bytes` must be at least 8.
std::uint64_t mixed(std::uint64_t hash, const unsigned char* from, std::size_t bytes) noexcept {
  const auto mix_in = [&hash](const unsigned char* word) {
    hash = (hash ^ load<std::uint64_t>(word)) * kMix;
    hash ^= hash >> 32;
  };
  const unsigned char* const last = from + bytes - sizeof(std::uint64_t);
  for (; from < last; from += sizeof(std::uint64_t)) mix_in(from);
  mix_in(last);
  return hash;
}

}  // namespace

bool SearchTable::is_usable() const noexcept {
  return header_[0] == 1 && bytes_of(header_[1]) == 4 && header_[2] == kUnsigned4 &&
         header_[3] == (kRelativeToTable | kSigned4);
}

bool SearchTable::find(Address place, std::uint32_t* number) const noexcept {
  std::uint32_t first = 0;
  std::uint32_t behind = count();
  if (behind == 0 || function(0) > place) return false;
  while (behind - first > 1) {
    const std::uint32_t middle = first + (behind - first) / 2;
    (function(middle) <= place ? first : behind) = middle;
  }
  *number = first;
  return true;
}

Reading read_rule(const unsigned char* description, Address function, Address place, Rule* rule,
                  std::size_t* bytes_read) noexcept {
  Common common;
  if (!has_known_length(description) || !read_common(common_part(description), &common)) {
    return Reading::not_understood;
  }
  const std::size_t bytes = bytes_of(common.encoding);
  if (bytes != 4 && bytes != 8) return Reading::not_understood;
  Reader in{description + 8, end_of(description)};
  in.skip(bytes);
  const std::uint64_t size = bytes == 4 ? in.fixed<std::uint32_t>() : in.fixed<std::uint64_t>();
  if (place - function >= size) return Reading::not_described;
  if (common.has_further_data) in.block();

  // The common instructions apply to the whole function, so they do not advance.
  Program beginning{common, function, place};
  if (!beginning.run(common.instructions, {})) return Reading::not_understood;
  const Rule initial = beginning.rule();
  if (!beginning.run(in, initial)) return Reading::not_understood;
  *rule = beginning.rule();
  rule->is_signal = common.is_signal;
  *bytes_read = static_cast<std::size_t>(in.at() - description);
  return Reading::done;
}

std::uint64_t fingerprint(const unsigned char* description, std::size_t bytes) noexcept {
  // The table may have changed since it was read.
  if (!has_known_length(description) || description + bytes > end_of(description)) return 0;
  const unsigned char* const common = common_part(description);
  if (!has_known_length(common)) return 0;
  const std::uint64_t own = mixed(0, description, bytes);
  return mixed(own, common, static_cast<std::size_t>(end_of(common) - common)) | 1;
}

}  // namespace allod::unwind
