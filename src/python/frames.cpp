#include "python/frames.hpp"

#include <dlfcn.h>
#include <string.h>

#include <atomic>
#include <iterator>

#include "allod/base/auxiliary.hpp"
#include "allod/os/linux/symbol_table.hpp"
#include "python/lines.hpp"

#if defined(ALLOD_HAS_UNWINDER) && defined(DLFO_STRUCT_HAS_EH_DBASE)

// Weak: the program may run with an older libc.
#pragma weak _dl_find_object

namespace allod::python {

namespace {

struct Interpreter {
  Layout layout;
  Address begin;  // of its file, all of which can be read, or equal to `end`
  Address end;
  Address runtime;
  Address loop;  // _PyEval_EvalFrameDefault
  Address loop_end;
  Address code_type;
  Address text_type;
  Address bytes_type;
};

enum class State : unsigned char { unknown, being_noted, known };
constinit std::atomic<State> state{State::unknown};
constinit Interpreter interpreter{};  // constant once known

// Where objects begin that hold no interpreter. Two may share a cell: then they are asked again.
constinit std::atomic<Address> others[64];

std::atomic<Address>& cell_of(Address begin) noexcept {
  return others[begin / 4096 % std::size(others)];
}

// The loader has relocated the entries of the dynamic section, unless that is read-only.
class Object {
 public:
  explicit Object(const dl_find_object& found) noexcept
      : bias_{found.dlfo_link_map->l_addr},
        symbols_{found.dlfo_link_map->l_ld, [&](Address table) noexcept {
                   const Address begin = address_of(found.dlfo_map_start);
                   const Address end = address_of(found.dlfo_map_end);
                   if (table < begin) table += found.dlfo_link_map->l_addr;
                   return table >= begin && table < end ? table : Address{0};
                 }} {}

  // 0 if there is none of this name.
  [[nodiscard]] Address find(const char* name, std::size_t* bytes = nullptr) const noexcept {
    const ElfW(Sym)* const symbol = symbols_.find(name);
    if (symbol == nullptr) return 0;
    if (bytes != nullptr) *bytes = symbol->st_size;
    return bias_ + symbol->st_value;
  }

 private:
  Address bias_;
  os::SymbolTable symbols_;
};

// As Py_Version has it. 0: older than 3.9.
std::uint32_t version_of(const Object& object, unwind::ScatteredMemory& memory) noexcept {
  constexpr std::uint32_t k39 = 0x03090000;
  constexpr std::uint32_t k310 = 0x030a0000;
  unsigned long version = 0;
  const Address told = object.find("Py_Version");
  if (told != 0) return memory.read(told, &version) ? static_cast<std::uint32_t>(version) : 0;
  if (object.find("Py_NewRef") != 0) return k310;
  return object.find("PyObject_GC_IsTracked") != 0 ? k39 : 0;
}

bool is_all_readable(Address begin, Address end) noexcept {
  for (Address page = begin; page < end; page += unwind::kProbedBytes) {
    if (!unwind::is_readable(page)) return false;
  }
  return true;
}

bool describe(const Object& object, Interpreter* found) noexcept {
  unwind::ScatteredMemory memory;
  std::size_t loop_bytes = 0;
  found->runtime = object.find("_PyRuntime");
  if (found->runtime == 0) return false;
  found->loop = object.find("_PyEval_EvalFrameDefault", &loop_bytes);
  found->loop_end = found->loop + loop_bytes;
  found->code_type = object.find("PyCode_Type");
  found->text_type = object.find("PyUnicode_Type");
  found->bytes_type = object.find("PyBytes_Type");
  return found->loop != 0 && found->code_type != 0 && found->text_type != 0 &&
         found->bytes_type != 0 &&
         find_layout(version_of(object, memory), found->runtime, memory, &found->layout);
}

}  // namespace

void look_for_interpreter(const std::uintptr_t* frames, std::size_t count) noexcept {
  if (&_dl_find_object == nullptr || state.load(std::memory_order_relaxed) != State::unknown)
    return;
  for (std::size_t i = 0; i < count; ++i) {
    dl_find_object object;
    if (_dl_find_object(reinterpret_cast<void*>(frames[i] - 1), &object) != 0) continue;
    const Address begin = address_of(object.dlfo_map_start);
    if (cell_of(begin).load(std::memory_order_relaxed) == begin) continue;
    cell_of(begin).store(begin, std::memory_order_relaxed);
    Interpreter found{};
    if (!describe(Object{object}, &found)) continue;
    found.begin = found.end = begin;
    const Address end = address_of(object.dlfo_map_end);
    if (is_all_readable(begin, end)) found.end = end;
    State before = State::unknown;
    if (!state.compare_exchange_strong(before, State::being_noted)) return;
    interpreter = found;
    return state.store(State::known, std::memory_order_release);
  }
}

bool is_known() noexcept { return state.load(std::memory_order_acquire) == State::known; }

bool is_loop(std::uintptr_t frame) noexcept {
  return frame > interpreter.loop && frame <= interpreter.loop_end;
}

bool is_generated(std::uintptr_t frame) noexcept {
  if (&_dl_find_object == nullptr) return false;
  dl_find_object object;
  return _dl_find_object(reinterpret_cast<void*>(frame - 1), &object) != 0;
}

// --- the calling thread's frames ----------------------------------------------------

Frames::Frames(unwind::ScatteredMemory::IsPresent is_present) noexcept : memory_{is_present} {
  const Layout& at = interpreter.layout;
  // It may have been unloaded.
  dl_find_object object;
  if (&_dl_find_object == nullptr ||
      _dl_find_object(reinterpret_cast<void*>(interpreter.loop), &object) != 0 ||
      address_of(object.dlfo_map_start) != interpreter.begin) {
    return;
  }
  memory_.trust(interpreter.begin, interpreter.end);
  Address thread = 0;
  if (!find_thread(&thread)) return;
  Address frame = 0;
  if (!memory_.read(thread + at.thread_frame, &frame)) return;
  if (at.has_c_frame && frame != 0 && !memory_.read(frame + at.c_frame_frame, &frame)) return;
  while (frame != 0 && is_owned_by_c(frame)) {
    if (!memory_.read(frame + at.back, &frame)) return;
  }
  frame_ = frame;
}

// Other threads may end meanwhile, so that the list may lead anywhere.
bool Frames::find_thread(Address* thread) noexcept {
  constexpr unsigned kMostInterpreters = 64;
  constexpr unsigned kMostThreads = 4096;
  const Layout& at = interpreter.layout;
  // What pthread_self() returns.
  const auto self = reinterpret_cast<Address>(thread_pointer());
  Address each = 0;
  if (!memory_.read(interpreter.runtime + at.interpreters, &each)) return false;
  for (unsigned i = 0; each != 0 && i < kMostInterpreters; ++i) {
    Address one = 0;
    if (!memory_.read(each + at.threads, &one)) return false;
    for (unsigned k = 0; one != 0 && k < kMostThreads; ++k) {
      const Address fields[] = {one + at.thread_id, one + at.thread_frame, one + at.next_thread};
      Address words[3] = {};
      if (!memory_.read_words(fields, words)) return false;
      const auto [id, frame, next] = words;
      // A thread may have been in several interpreters. It runs in one.
      if (id == self && frame != 0) {
        *thread = one;
        return true;
      }
      one = next;
    }
    if (!memory_.read(each + at.next_interpreter, &each)) return false;
  }
  return false;
}

bool Frames::is_owned_by_c(Address frame) noexcept {
  constexpr unsigned char kFirstOfC = 3;
  unsigned char owner = 0;
  const Layout& at = interpreter.layout;
  return at.entry == Entry::owned && memory_.read(frame + at.owner, &owner) && owner >= kFirstOfC;
}

bool Frames::find_caller(Address* back, bool* is_entry) noexcept {
  const Layout& at = interpreter.layout;
  unsigned char mark = 1;
  if (!memory_.read(frame_ + at.back, back)) return false;
  if (at.entry == Entry::marked && !memory_.read(frame_ + at.owner, &mark)) return false;
  *is_entry = at.entry != Entry::owned && mark != 0;
  while (*back != 0 && is_owned_by_c(*back)) {
    *is_entry = true;
    if (!memory_.read(*back + at.back, back)) return false;
  }
  *is_entry = *is_entry || *back == 0;
  return true;
}

bool Frames::next(Frame* frame) noexcept {
  const Layout& at = interpreter.layout;
  // Bits below mark how an object is referred to.
  constexpr Address kReference = 7;
  if (frame_ == 0) return false;
  Address back = 0;
  Address code = 0;
  Address file = 0;
  Address name = 0;
  std::int64_t instruction = 0;
  bool is_sound = find_caller(&back, &frame->is_entry) && memory_.read(frame_ + at.code, &code);
  code &= ~kReference;
  is_sound = is_sound && is_of_type(code, interpreter.code_type) &&
             memory_.read(code + at.name, &name) && memory_.read(code + at.file, &file) &&
             read_name(name, function_, sizeof function_, &frame->function) &&
             read_name(file, file_, sizeof file_, &frame->file) &&
             find_instruction(code, &instruction);
  if (is_sound) frame->line = line_at(code, instruction);
  frame_ = is_sound ? back : 0;
  return is_sound;
}

bool Frames::is_of_type(Address object, Address type) noexcept {
  Address found = 0;
  return object != 0 && memory_.read(object + interpreter.layout.type, &found) && found == type;
}

namespace {

// Appends a character as UTF-8. What stands for a byte that was not UTF-8 (PEP 383) is that byte.
std::size_t encode(std::uint32_t c, char (&to)[4]) noexcept {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (c < 0x80 || (c >= 0xdc80 && c <= 0xdcff)) {
    to[0] = byte(c & 0xff);
    return 1;
  }
  if (c < 0x800) {
    to[0] = byte(0xc0 | c >> 6);
    to[1] = byte(0x80 | (c & 63));
    return 2;
  }
  if (c < 0x10000) {
    to[0] = byte(0xe0 | c >> 12);
    to[1] = byte(0x80 | (c >> 6 & 63));
    to[2] = byte(0x80 | (c & 63));
    return 3;
  }
  to[0] = byte(0xf0 | (c >> 18 & 7));
  to[1] = byte(0x80 | (c >> 12 & 63));
  to[2] = byte(0x80 | (c >> 6 & 63));
  to[3] = byte(0x80 | (c & 63));
  return 4;
}

// The bits of a text's state: how it is interned, which is of another width in some releases; the
// bytes of a character; whether it lies behind its head; whether it is ASCII.
struct TextState {
  unsigned kind = 0;
  bool is_ascii = false;

  explicit TextState(std::uint32_t bits) noexcept {
    for (const unsigned interned : {2U, 8U, 16U}) {
      const std::uint32_t rest = bits >> interned;
      const bool is_compact = (rest & 8) != 0;
      if (!is_compact || ((rest & 7) != 1 && (rest & 7) != 2 && (rest & 7) != 4)) continue;
      kind = rest & 7;
      is_ascii = (rest & 16) != 0;
      return;
    }
  }
};

}  // namespace

// Long names lose their end, and long paths their beginning.
bool Frames::read_name(Address object, char* to, std::size_t room,
                       std::string_view* name) noexcept {
  constexpr std::uint64_t kMostCharacters = 1 << 20;
  const Layout& at = interpreter.layout;
  std::uint64_t length = 0;
  std::uint32_t bits = 0;
  if (!is_of_type(object, interpreter.text_type)) return false;
  if (!memory_.read(object + at.text_length, &length) || length > kMostCharacters) return false;
  if (!memory_.read(object + at.text_state, &bits)) return false;
  const TextState form{bits};
  if (form.kind == 0) return false;
  const Address begin = object + (form.is_ascii ? at.text_ascii : at.text_compact);
  const std::uint64_t most = form.is_ascii ? room : room / 4;
  const std::uint64_t first = to == file_ && length > most ? length - most : 0;
  const std::uint64_t count = length - first < most ? length - first : most;
  if (form.is_ascii) {
    *name = {to, count};
    return memory_.copy(begin + first, to, count);
  }
  std::size_t used = 0;
  for (std::uint64_t i = first; i < first + count; ++i) {
    std::uint32_t c = 0;
    if (!memory_.copy(begin + i * form.kind, &c, form.kind)) return false;
    char bytes[4];
    const std::size_t more = encode(c, bytes);
    memcpy(to + used, bytes, more);
    used += more;
  }
  *name = {to, used};
  return true;
}

// In bytes from the first one; -1: before it.
bool Frames::find_instruction(Address code, std::int64_t* found) noexcept {
  constexpr std::int64_t kMostBytes = 1 << 28;
  const Layout& at = interpreter.layout;
  if (at.lines == Lines::locations) {
    Address instruction = 0;
    if (!memory_.read(frame_ + at.instruction, &instruction)) return false;
    *found = static_cast<std::int64_t>(instruction - (code + at.instructions));
  } else {
    std::int32_t index = 0;
    if (!memory_.read(frame_ + at.instruction, &index)) return false;
    *found = at.lines == Lines::ranges && index >= 0 ? std::int64_t{2} * index : index;
  }
  // Threads may have copies of the code, where Python has no global lock.
  if (*found < 0 || *found > kMostBytes) *found = -1;
  return true;
}

unsigned Frames::line_at(Address code, std::int64_t instruction) noexcept {
  constexpr std::uint64_t kMostBytes = 1 << 20;
  const Layout& at = interpreter.layout;
  std::int32_t first = 0;
  Address table = 0;
  std::uint64_t length = 0;
  if (!memory_.read(code + at.first_line, &first)) return 0;
  std::int64_t line = first;
  if (instruction >= 0 && memory_.read(code + at.line_table, &table) &&
      is_of_type(table, interpreter.bytes_type) && memory_.read(table + at.bytes_length, &length)) {
    Bytes bytes{memory_, table + at.bytes_begin, length < kMostBytes ? length : kMostBytes};
    switch (at.lines) {
      case Lines::increments:
        line = line_by_increments(bytes, first, instruction);
        break;
      case Lines::ranges:
        line = line_by_ranges(bytes, first, instruction);
        break;
      case Lines::locations:
        line = line_by_locations(bytes, first, instruction);
        break;
    }
  }
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

}  // namespace allod::python

#else

namespace allod::python {

void look_for_interpreter(const std::uintptr_t*, std::size_t) noexcept {}
bool is_known() noexcept { return false; }
bool is_loop(std::uintptr_t) noexcept { return false; }
bool is_generated(std::uintptr_t) noexcept { return false; }
Frames::Frames(unwind::ScatteredMemory::IsPresent) noexcept {}
bool Frames::next(Frame*) noexcept { return false; }

}  // namespace allod::python

#endif
