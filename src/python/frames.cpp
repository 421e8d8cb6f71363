#include "python/frames.hpp"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <iterator>

#include "allod/base/auxiliary.hpp"
#include "allod/os/linux/symbol_table.hpp"
#include "python/lines.hpp"

#if defined(ALLOD_HAS_UNWINDER) && defined(DLFO_STRUCT_HAS_EH_DBASE)

// Weak: the program may run with an older libc.
#pragma weak _dl_find_object

namespace allod::python {

namespace {

// Bytes of a structure up to the last field that is read.
struct Spans {
  std::uint32_t frame = 0;
  std::uint32_t code = 0;
  std::uint32_t text = 0;
  std::uint32_t bytes = 0;

  constexpr Spans() noexcept = default;
  explicit constexpr Spans(const Layout& at) noexcept
      : frame{end_of({at.code, at.back, at.instruction, at.owner})},
        code{end_of({at.type, at.first_line, at.file, at.name, at.line_table})},
        text{end_of({at.type, at.text_length, at.text_state})},
        bytes{end_of({at.type, at.bytes_length})} {}

 private:
  static constexpr std::uint32_t end_of(std::initializer_list<std::uint32_t> fields) noexcept {
    return std::max(fields) + sizeof(Address);
  }
};

struct Interpreter {
  Layout layout{};
  Spans spans;
  Address begin = 0;  // of its file, all of which can be read, or equal to `end`
  Address end = 0;
  Address runtime = 0;
  Address loop = 0;  // _PyEval_EvalFrameDefault
  Address loop_end = 0;
  Address code_type = 0;
  Address text_type = 0;
  Address bytes_type = 0;
};

// Of a span that is there.
template <class T>
T field(Address structure, std::uint32_t offset) noexcept {
  T value;
  memcpy(&value, reinterpret_cast<const void*>(structure + offset), sizeof value);
  return value;
}

enum class State : unsigned char { unknown, being_noted, known };
constinit std::atomic<State> state{State::unknown};
constinit Interpreter interpreter;  // constant once known

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
    found.spans = Spans{found.layout};
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

// Of a frame that is there.
bool Frames::find_caller(Address* back, bool* is_entry) noexcept {
  const Layout& at = interpreter.layout;
  *back = field<Address>(frame_, at.back);
  // 3.9 and 3.10 have no mark: each is an entry.
  const bool is_marked = at.entry == Entry::each || field<unsigned char>(frame_, at.owner) != 0;
  *is_entry = at.entry != Entry::owned && is_marked;
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
  const bool is_sound = memory_.is_there(frame_, interpreter.spans.frame) &&
                        find_caller(&back, &frame->is_entry) &&
                        find_place(field<Address>(frame_, at.code) & ~kReference);
  if (is_sound) frame->identity = identity();
  frame_ = is_sound ? back : 0;
  return is_sound;
}

bool Frames::find_place(Address code) noexcept {
  const Layout& at = interpreter.layout;
  if (!is_of_type(code, interpreter.code_type, interpreter.spans.code) ||
      !find_text(field<Address>(code, at.name), kMostFunction, false, &place_.function) ||
      !find_text(field<Address>(code, at.file), kMostFile, true, &place_.file)) {
    return false;
  }
  find_instruction(code);
  find_line_table(code);
  return true;
}

bool Frames::describe(Names* names) noexcept {
  names->line = line();
  return copy_text(place_.function, function_, &names->function) &&
         copy_text(place_.file, file_, &names->file);
}

namespace {

// A hash of words, which go to two chains in turn: neither waits for the other.
class Mixer {
 public:
  void add(std::uint64_t word) noexcept {
    const std::uint64_t mixed = (next_ ^ word) * kMix;
    next_ = last_;
    last_ = mixed ^ mixed >> 29;
  }
  void add(const void* from, std::size_t bytes) noexcept {
    const auto* at = static_cast<const unsigned char*>(from);
    std::uint64_t word = 0;
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
      memcpy(&word, at, sizeof word);
      add(word);
    }
    word = 0;
    memcpy(&word, at, bytes);
    add(word);
  }
  [[nodiscard]] std::uint64_t result() const noexcept {
    const std::uint64_t mixed = ((next_ * kMix) ^ (next_ >> 32) ^ last_) * kMix;
    return (mixed ^ mixed >> 32) | std::uint64_t{1} << 63;
  }

 private:
  std::uint64_t next_ = 0;
  std::uint64_t last_ = kMix;
};

}  // namespace

std::uint64_t Frames::identity() noexcept {
  constexpr std::uint64_t kMostOfTable = 1024;
  Mixer mixer;
  mixer.add(static_cast<std::uint64_t>(place_.instruction));
  mixer.add(static_cast<std::uint32_t>(place_.first_line));
  mixer.add(place_.table_bytes);
  const auto add = [&](Address begin, std::uint64_t bytes) noexcept {
    // What is not there has no text.
    if (bytes != 0 && memory_.is_there(begin, bytes))
      mixer.add(reinterpret_cast<const void*>(begin), bytes);
  };
  for (const Shown* const text : {&place_.function, &place_.file}) {
    mixer.add(text->count << 4 | text->kind);
    add(text->begin, text->count * text->kind);
  }
  add(place_.line_table, place_.table_bytes < kMostOfTable ? place_.table_bytes : kMostOfTable);
  return mixer.result();
}

// `span`: of what is read of it.
bool Frames::is_of_type(Address object, Address type, std::uint32_t span) noexcept {
  return object != 0 && memory_.is_there(object, span) &&
         field<Address>(object, interpreter.layout.type) == type;
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

// Long names lose their end, and long paths their beginning. `room`: bytes for what is shown.
bool Frames::find_text(Address object, std::size_t room, bool cuts_begin, Shown* text) noexcept {
  constexpr std::uint64_t kMostCharacters = 1 << 20;
  const Layout& at = interpreter.layout;
  if (!is_of_type(object, interpreter.text_type, interpreter.spans.text)) return false;
  const auto length = field<std::uint64_t>(object, at.text_length);
  const TextState form{field<std::uint32_t>(object, at.text_state)};
  if (length > kMostCharacters || form.kind == 0) return false;
  const Address begin = object + (form.is_ascii ? at.text_ascii : at.text_compact);
  const std::uint64_t most = form.is_ascii ? room : room / 4;
  const std::uint64_t first = cuts_begin && length > most ? length - most : 0;
  const std::uint64_t count = length - first < most ? length - first : most;
  *text = {begin + first * form.kind, count, form.kind, form.is_ascii};
  return true;
}

bool Frames::copy_text(const Shown& text, char* to, std::string_view* name) noexcept {
  if (text.is_ascii) {
    *name = {to, text.count};
    return memory_.copy(text.begin, to, text.count);
  }
  std::size_t used = 0;
  for (std::uint64_t i = 0; i < text.count; ++i) {
    std::uint32_t c = 0;
    if (!memory_.copy(text.begin + i * text.kind, &c, text.kind)) return false;
    char bytes[4];
    const std::size_t more = encode(c, bytes);
    memcpy(to + used, bytes, more);
    used += more;
  }
  *name = {to, used};
  return true;
}

void Frames::find_instruction(Address code) noexcept {
  constexpr std::int64_t kMostBytes = 1 << 28;
  const Layout& at = interpreter.layout;
  std::int64_t& found = place_.instruction;
  if (at.lines == Lines::locations) {
    const auto instruction = field<Address>(frame_, at.instruction);
    found = static_cast<std::int64_t>(instruction - (code + at.instructions));
  } else {
    const auto index = field<std::int32_t>(frame_, at.instruction);
    found = at.lines == Lines::ranges && index >= 0 ? std::int64_t{2} * index : index;
  }
  // Threads may have copies of the code, where Python has no global lock.
  if (found < 0 || found > kMostBytes) found = -1;
}

void Frames::find_line_table(Address code) noexcept {
  constexpr std::uint64_t kMostBytes = 1 << 20;
  const Layout& at = interpreter.layout;
  const auto table = field<Address>(code, at.line_table);
  place_.line_table = place_.table_bytes = 0;
  place_.first_line = field<std::int32_t>(code, at.first_line);
  if (place_.instruction < 0 ||
      !is_of_type(table, interpreter.bytes_type, interpreter.spans.bytes)) {
    return;
  }
  const auto length = field<std::uint64_t>(table, at.bytes_length);
  place_.line_table = table + at.bytes_begin;
  place_.table_bytes = length < kMostBytes ? length : kMostBytes;
}

// 0: not known.
unsigned Frames::line() noexcept {
  const std::int64_t first = place_.first_line;
  std::int64_t line = first;
  if (place_.line_table != 0) {
    Bytes bytes{memory_, place_.line_table, place_.table_bytes};
    switch (interpreter.layout.lines) {
      case Lines::increments:
        line = line_by_increments(bytes, first, place_.instruction);
        break;
      case Lines::ranges:
        line = line_by_ranges(bytes, first, place_.instruction);
        break;
      case Lines::locations:
        line = line_by_locations(bytes, first, place_.instruction);
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
bool Frames::describe(Names*) noexcept { return false; }

}  // namespace allod::python

#endif
