#include "unwind/unwinder.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "allod/base/auxiliary.hpp"
#include "allod/os/linux/linux.hpp"
#include "unwind/known_rules.hpp"
#include "unwind/memory.hpp"
#include "unwind/unwind_table.hpp"

#if defined(ALLOD_HAS_UNWINDER) && defined(DLFO_STRUCT_HAS_EH_DBASE)
#include <gnu/libc-version.h>

// Weak: the program may run with an older libc.
#pragma weak _dl_find_object

namespace allod::unwind {

namespace {

// --- objects ------------------------------------------------------------------------

// A loaded object: the program or a library.
struct Object {
  Address begin = 0;
  Address end = 0;
  const unsigned char* header = nullptr;  // of its search table; null: none
  bool stays = false;                     // never unloaded

  [[nodiscard]] ALLOD_INLINE bool holds(Address address) const noexcept {
    return address - begin < end - begin;
  }
};

// An object that is never unloaded, found without asking the loader. Threads may learn it
// concurrently; all store the same values.
class Lasting {
 public:
  [[nodiscard]] bool is_known() const noexcept {
    return begin_.load(std::memory_order_acquire) != 0;
  }
  [[nodiscard]] ALLOD_INLINE bool find(Address place, Object* object) const noexcept {
    const Address begin = begin_.load(std::memory_order_acquire);
    const Address end = end_.load(std::memory_order_relaxed);
    if (begin == 0 || place - begin >= end - begin) return false;
    *object = {begin, end, header_.load(std::memory_order_relaxed), true};
    return true;
  }
  void learn(const Object& object) noexcept {
    end_.store(object.end, std::memory_order_relaxed);
    header_.store(object.header, std::memory_order_relaxed);
    begin_.store(object.begin, std::memory_order_release);
  }

 private:
  std::atomic<Address> begin_{0};
  std::atomic<Address> end_{0};
  std::atomic<const unsigned char*> header_{nullptr};
};

// Never unloaded: this library (marked so), the libc that it needs, and the program.
constinit Lasting lasting[3];

Address inside_lasting(std::size_t i) noexcept {
  switch (i) {
    case 0:
      return address_of(&pairs);
    case 1:
      return Auxiliary::value(AT_PHDR);
    default:
      return reinterpret_cast<Address>(&gnu_get_libc_version);
  }
}

[[gnu::noinline]] bool ask_loader(Address place, Object* object) noexcept {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(place), &found) != 0) return false;
  *object = {address_of(found.dlfo_map_start), address_of(found.dlfo_map_end),
             static_cast<const unsigned char*>(found.dlfo_eh_frame)};
  for (std::size_t i = 0; i < std::size(lasting); ++i) {
    if (lasting[i].is_known() || !object->holds(inside_lasting(i))) continue;
    object->stays = true;
    lasting[i].learn(*object);
  }
  return true;
}

bool find_object(Address place, Object* object) noexcept {
  for (const Lasting& each : lasting) {
    if (each.find(place, object)) return true;
  }
  return ask_loader(place, object);
}

// Another library may have been loaded at the address of an unloaded one. So the table entry and
// the description are compared with those that the rule came from.
bool still_holds(const Known& known, const unsigned char* header) noexcept {
  if (known.header != header) return false;
  const SearchTable table{header};
  return known.number < table.count() && table.line(known.number) == known.line &&
         fingerprint(table.description(known.number), known.bytes_read) == known.fingerprint;
}

// --- the walk -----------------------------------------------------------------------

// Evaluates expressions. Those of compilers, linkers and libc need only registers and memory.
class Evaluation {
 public:
  Evaluation(const Registers& registers, Memory& memory) noexcept
      : registers_(registers), memory_(memory) {}

  // Evaluates an expression with `first` on its stack.
  [[nodiscard]] bool evaluate(const Expression& expression, Address first,
                              Address* result) noexcept {
    code_ = expression.code;
    end_ = code_ + expression.bytes;
    depth_ = 0;
    push(first);
    while (code_ != end_) {
      if (!step()) return false;
    }
    if (depth_ == 0) return false;
    *result = values_[depth_ - 1];
    return true;
  }

 private:
  enum Operation : unsigned char {
    kDereference = 0x06,
    kConstant1 = 0x08,
    kConstant1Signed = 0x09,
    kAnd = 0x1a,
    kMinus = 0x1c,
    kPlus = 0x22,
    kPlusConstant = 0x23,
    kShiftLeft = 0x24,
    kGreaterOrEqual = 0x2a,
    kLiteral = 0x30,
    kRegisterPlus = 0x70,
    kBehindRegisterPlus = 0x90,
  };

  bool push(Address value) noexcept {
    if (depth_ == kMost) return false;
    values_[depth_++] = value;
    return true;
  }
  bool byte(unsigned char* value) noexcept {
    if (code_ == end_) return false;
    *value = *code_++;
    return true;
  }
  bool varying(bool is_signed, Address* value) noexcept {
    unsigned char part = 0;
    unsigned shift = 0;
    *value = 0;
    do {
      if (shift >= 64 || !byte(&part)) return false;
      *value |= Address{part & 0x7fU} << shift;
      shift += 7;
    } while ((part & 0x80) != 0);
    if (is_signed && shift < 64 && (part & 0x40) != 0) *value |= ~Address{0} << shift;
    return true;
  }

  bool step() noexcept {
    unsigned char operation = 0;
    if (!byte(&operation)) return false;
    if (operation >= kRegisterPlus && operation < kBehindRegisterPlus) {
      Address offset = 0;
      Address base = 0;
      return varying(true, &offset) && value_of(operation - kRegisterPlus, &base) &&
             push(base + offset);
    }
    if (operation >= kLiteral && operation < kRegisterPlus) {
      return operation < kLiteral + 32 && push(operation - kLiteral);
    }
    unsigned char small = 0;
    Address constant = 0;
    switch (operation) {
      case kConstant1:
        return byte(&small) && push(small);
      case kConstant1Signed:
        return byte(&small) &&
               push(static_cast<Address>(std::int64_t{static_cast<std::int8_t>(small)}));
      case kPlusConstant:
        if (depth_ == 0 || !varying(false, &constant)) return false;
        values_[depth_ - 1] += constant;
        return true;
      case kDereference:
        return depth_ > 0 && memory_.read(values_[depth_ - 1], &values_[depth_ - 1]);
      default:
        return combine(operation);
    }
  }

  bool combine(unsigned char operation) noexcept {
    if (depth_ < 2) return false;
    const Address right = values_[--depth_];
    Address& left = values_[depth_ - 1];
    switch (operation) {
      case kAnd:
        left &= right;
        return true;
      case kMinus:
        left -= right;
        return true;
      case kPlus:
        left += right;
        return true;
      case kShiftLeft:
        left = right < 64 ? left << right : 0;
        return true;
      case kGreaterOrEqual:
        left = static_cast<std::int64_t>(left) >= static_cast<std::int64_t>(right) ? 1 : 0;
        return true;
      default:
        return false;
    }
  }

  bool value_of(unsigned number, Address* value) const noexcept {
    if (number != kRbp && number != kRsp && number != kRip) return false;
    *value = number == kRbp ? registers_.rbp : number == kRsp ? registers_.rsp : registers_.rip;
    return true;
  }

  static constexpr unsigned kMost = 8;

  const Registers& registers_;
  Memory& memory_;
  const unsigned char* code_ = nullptr;
  const unsigned char* end_ = nullptr;
  unsigned depth_ = 0;
  Address values_[kMost];
};

class Walk {
 public:
  explicit Walk(const Registers& start) noexcept : registers_(start), memory_(start.rsp) {}

  enum class Step : unsigned char { caller, end, beyond_us };

  [[nodiscard]] Address place() const noexcept { return registers_.rip; }
  // True if a signal interrupted the frame, so that its address is not a return address.
  [[nodiscard]] bool is_interrupted() const noexcept { return is_interrupted_; }

  // Moves to the caller's frame.
  [[nodiscard]] Step step() noexcept {
    // A call may be the last instruction of its function, so look up the byte before.
    const Address place = is_interrupted_ ? registers_.rip : registers_.rip - 1;
    if (!object_.holds(place) && !find_object(place, &object_)) object_ = {};
    if (object_.header == nullptr) return leave_undescribed();
    Pair& pair = pair_of(place);
    Usual rule;
    if (object_.stays && pair.read(place, &rule)) return leave(rule);
    Known known;
    if (!object_.stays && pair.read(place, &known) && still_holds(known, object_.header)) {
      return leave(known.rule);
    }
    return look_up(place, pair);
  }

 private:
  [[gnu::noinline]] Step look_up(Address place, Pair& pair) noexcept {
    const SearchTable table{object_.header};
    if (!table.is_usable()) return Step::beyond_us;
    Known known{.place = place, .header = object_.header};
    if (!table.find(place, &known.number)) return leave_undescribed();
    Rule rule;
    std::size_t bytes_read = 0;
    const unsigned char* const description = table.description(known.number);
    switch (read_rule(description, table.function(known.number), place, &rule, &bytes_read)) {
      case Reading::not_described:
        return leave_undescribed();
      case Reading::not_understood:
        return Step::beyond_us;
      case Reading::done:
        break;
    }
    const bool is_outermost = rule.rip.where == Saved::Where::unknown;
    if (!is_outermost && !is_usual(rule)) return leave(rule);
    known.line = table.line(known.number);
    known.bytes_read = static_cast<std::uint32_t>(bytes_read);
    if (!object_.stays) known.fingerprint = fingerprint(description, bytes_read);
    if (!is_outermost) {
      known.rule.frame = static_cast<std::int32_t>(2 * rule.offset + (rule.base == kRbp ? 1 : 0));
      known.rule.rbp_at = rule.rbp.where == Saved::Where::at
                              ? static_cast<std::int32_t>(-rule.rbp.offset)
                              : Usual::kUnchanged;
    }
    pair.write(known);
    return leave(known.rule);
  }

  static bool is_usual(const Rule& rule) noexcept {
    using Where = Saved::Where;
    constexpr std::int64_t kFar = 1 << 30;
    return !rule.is_signal && !rule.expression.is_there() &&
           (rule.base == kRsp || rule.base == kRbp) && rule.offset > 0 && rule.offset < kFar &&
           rule.rsp.where == Where::unchanged && rule.rip.where == Where::at &&
           rule.rip.offset == -8 &&
           (rule.rbp.where == Where::unchanged ||
            (rule.rbp.where == Where::at && rule.rbp.offset < 0 && rule.rbp.offset > -kFar));
  }

  [[nodiscard]] ALLOD_INLINE Step leave(Usual rule) noexcept {
    if (rule.frame == 0) return Step::end;
    const Address base = rule.frame % 2 != 0 ? registers_.rbp : registers_.rsp;
    const Address frame = base + static_cast<Address>(rule.frame >> 1);
    Registers caller{.rsp = frame, .rbp = registers_.rbp};
    if (!memory_.read(frame - 8, &caller.rip)) return Step::end;
    if (rule.rbp_at != Usual::kUnchanged &&
        !memory_.read(frame - static_cast<Address>(rule.rbp_at), &caller.rbp)) {
      return Step::end;
    }
    return enter(caller, false);
  }

  [[gnu::noinline]] Step leave(const Rule& rule) noexcept {
    Address frame = 0;
    Evaluation evaluation{registers_, memory_};
    if (rule.expression.is_there()) {
      if (!evaluation.evaluate(rule.expression, 0, &frame)) return Step::beyond_us;
    } else if (rule.base == kRsp || rule.base == kRbp) {
      frame =
          (rule.base == kRsp ? registers_.rsp : registers_.rbp) + static_cast<Address>(rule.offset);
    } else {
      return Step::beyond_us;
    }
    Registers caller{.rip = registers_.rip, .rsp = frame, .rbp = registers_.rbp};
    if (!restore(rule.rip, frame, evaluation, &caller.rip) ||
        !restore(rule.rsp, frame, evaluation, &caller.rsp) ||
        !restore(rule.rbp, frame, evaluation, &caller.rbp)) {
      return Step::beyond_us;
    }
    return enter(caller, rule.is_signal);
  }

  [[nodiscard]] bool restore(const Saved& saved, Address frame, Evaluation& evaluation,
                             Address* value) noexcept {
    const Address at = frame + static_cast<Address>(saved.offset);
    Address place = 0;
    switch (saved.where) {
      case Saved::Where::unchanged:
      case Saved::Where::unknown:
        return true;
      case Saved::Where::at:
        return memory_.read(at, value);
      case Saved::Where::is:
        *value = at;
        return true;
      case Saved::Where::is_expression:
        return evaluation.evaluate(saved.expression, frame, value);
      case Saved::Where::at_expression:
        return evaluation.evaluate(saved.expression, frame, &place) && memory_.read(place, value);
    }
    return false;
  }

  [[nodiscard]] Step enter(const Registers& caller, bool is_interrupted) noexcept {
    // A frame that is its own caller ends the stack.
    if (caller.rsp == registers_.rsp && caller.rip == registers_.rip) return Step::end;
    registers_ = caller;
    is_interrupted_ = is_interrupted;
    return caller.rip == 0 ? Step::end : Step::caller;
  }

  // Code without a description: the signal trampoline of a program that does not use libc's, or
  // what a compiler made at run time. All else ends the stack.
  [[gnu::noinline]] Step leave_undescribed() noexcept {
    Address words[2];
    const Address begin = align_down(registers_.rip, sizeof(Address));
    for (std::size_t i = 0; i < 2; ++i) {
      if (!memory_.read(begin + i * sizeof(Address), &words[i])) return Step::end;
    }
    const auto* const code = reinterpret_cast<const unsigned char*>(words) + registers_.rip % 8;
    // mov $SYS_rt_sigreturn, %rax; syscall
    constexpr unsigned char kReturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    if (memcmp(code, kReturn, sizeof kReturn) == 0) return leave_signal_frame();
    // Stubs that call and return: add $N, %rsp; ret
    if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xc4 && code[3] < 0x80 &&
        code[4] == 0xc3) {
      return leave_stub(registers_.rsp + code[3], registers_.rbp);
    }
    // pop %rbp; ret
    Address rbp = 0;
    if (code[0] == 0x5d && code[1] == 0xc3 && memory_.read(registers_.rsp, &rbp)) {
      return leave_stub(registers_.rsp + sizeof(Address), rbp);
    }
    return leave_by_frame_pointer();
  }

  // The kernel's signal frame is at the top of the stack.
  [[nodiscard]] Step leave_signal_frame() noexcept {
    const Address saved = registers_.rsp + offsetof(ucontext_t, uc_mcontext.gregs);
    const auto at = [saved](int number) {
      return saved + static_cast<Address>(number) * sizeof(greg_t);
    };
    Registers caller;
    if (!memory_.read(at(REG_RIP), &caller.rip) || !memory_.read(at(REG_RSP), &caller.rsp) ||
        !memory_.read(at(REG_RBP), &caller.rbp)) {
      return Step::end;
    }
    return enter(caller, true);
  }

  // `at`: where the return address is.
  [[nodiscard]] Step leave_stub(Address at, Address rbp) noexcept {
    Registers caller{.rsp = at + sizeof(Address), .rbp = rbp};
    if (!memory_.read(at, &caller.rip) || !is_behind_call(caller.rip)) return Step::end;
    return enter(caller, false);
  }

  // Compilers at run time keep frame pointers, or can be told to. Others use the register for
  // anything, so what it leads to must look like a caller.
  [[nodiscard]] Step leave_by_frame_pointer() noexcept {
    constexpr Address kLargestFrame = Address{1} << 20;
    const Address frame = registers_.rbp;
    if (frame < registers_.rsp || frame - registers_.rsp > kLargestFrame) return Step::end;
    Address rbp = 0;
    if (!memory_.read(frame, &rbp)) return Step::end;
    return leave_stub(frame + sizeof(Address), rbp);
  }

  // Whether the instruction before is a call: e8 and four bytes, or ff /2 of two to seven bytes.
  [[nodiscard]] bool is_behind_call(Address place) noexcept {
    Address words[2];
    const Address begin = align_down(place - 8, sizeof(Address));
    for (std::size_t i = 0; i < 2; ++i) {
      if (!memory_.read(begin + i * sizeof(Address), &words[i])) return false;
    }
    const auto* const end = reinterpret_cast<const unsigned char*>(words) + (place - begin);
    if (end[-5] == 0xe8) return true;
    for (const int length : {2, 3, 4, 6, 7}) {
      if (end[-length] == 0xff && (end[1 - length] & 0x38) == 0x10) return true;
    }
    return false;
  }

  Registers registers_;
  Memory memory_;
  Object object_;
  bool is_interrupted_ = false;
};

}  // namespace

Outcome walk(Registers start, From from, std::uintptr_t* frames, std::uint32_t most,
             std::uint32_t* count) noexcept {
  *count = 0;
  if (&_dl_find_object == nullptr) return Outcome::unfinished;
  Walk walk{start};
  bool is_noting = from == From::here;
  constexpr std::uint32_t kMostSteps = 256;
  for (std::uint32_t i = 0; i < kMostSteps; ++i) {
    if (walk.is_interrupted()) is_noting = true;
    if (is_noting) {
      if (*count == most) return Outcome::whole;
      frames[(*count)++] = walk.place();
    }
    switch (walk.step()) {
      case Walk::Step::end:
        return Outcome::whole;
      case Walk::Step::beyond_us:
        return Outcome::unfinished;
      case Walk::Step::caller:
        break;
    }
  }
  return Outcome::whole;
}

}  // namespace allod::unwind

#else

namespace allod::unwind {

Outcome walk(Registers, From, std::uintptr_t*, std::uint32_t, std::uint32_t*) noexcept {
  return Outcome::unfinished;
}

}  // namespace allod::unwind

#endif
