#include "python/layout.hpp"

#include <string.h>

#include <algorithm>
#include <iterator>

namespace allod::python {

namespace {

constexpr Layout kLayout39{.lines = Lines::increments,
                           .entry = Entry::each,
                           .has_c_frame = false,
                           .c_frame_frame = 0,
                           .interpreters = 32,
                           .next_interpreter = 0,
                           .threads = 8,
                           .next_thread = 8,
                           .thread_id = 176,
                           .thread_frame = 24,
                           .code = 32,
                           .back = 24,
                           .instruction = 104,
                           .owner = 0,
                           .first_line = 40,
                           .file = 104,
                           .name = 112,
                           .line_table = 120,
                           .instructions = 0,
                           .type = 8,
                           .text_length = 16,
                           .text_state = 32,
                           .text_ascii = 48,
                           .text_compact = 72,
                           .bytes_length = 16,
                           .bytes_begin = 32};

constexpr Layout layout_310() noexcept {
  Layout layout = kLayout39;
  layout.lines = Lines::ranges;
  layout.instruction = 96;
  return layout;
}

constexpr Layout layout_311() noexcept {
  Layout layout = kLayout39;
  layout.lines = Lines::locations;
  layout.entry = Entry::marked;
  layout.has_c_frame = true;
  layout.c_frame_frame = 8;
  layout.interpreters = 40;
  layout.threads = 16;
  layout.thread_id = 152;
  layout.thread_frame = 56;
  layout.code = 32;
  layout.back = 48;
  layout.instruction = 56;
  layout.owner = 68;
  layout.first_line = 72;
  layout.file = 112;
  layout.name = 128;
  layout.line_table = 136;
  layout.instructions = 184;
  return layout;
}

constexpr Layout layout_312() noexcept {
  Layout layout = layout_311();
  layout.entry = Entry::owned;
  layout.c_frame_frame = 0;
  layout.threads = 72;
  layout.thread_id = 136;
  layout.code = 0;
  layout.back = 8;
  layout.owner = 70;
  layout.first_line = 68;
  layout.instructions = 192;
  layout.text_ascii = 40;
  layout.text_compact = 56;
  return layout;
}

constexpr Layout kKnown[] = {kLayout39, layout_310(), layout_311(), layout_312()};
constexpr std::uint32_t kFirstKnown = 9;  // 3.9

// --- since 3.13: _Py_DebugOffsets at the start of _PyRuntime -------------------------------------

// The numbers of its words. It is a sequence of 64-bit offsets after a word of text.
struct Words {
  unsigned interpreters, next_interpreter, threads, next_thread, frame, thread_id;
  unsigned back, code, instruction, owner;
  unsigned file, name, line_table, first_line, instructions;
  unsigned type, bytes_length, bytes_begin, text_state, text_length, text_ascii;
};
constexpr Words kWords313{.interpreters = 5,
                          .next_interpreter = 8,
                          .threads = 9,
                          .next_thread = 21,
                          .frame = 23,
                          .thread_id = 24,
                          .back = 29,
                          .code = 30,
                          .instruction = 31,
                          .owner = 33,
                          .file = 35,
                          .name = 37,
                          .line_table = 38,
                          .first_line = 39,
                          .instructions = 43,
                          .type = 45,
                          .bytes_length = 65,
                          .bytes_begin = 66,
                          .text_state = 68,
                          .text_length = 69,
                          .text_ascii = 70};
constexpr Words kWords314{.interpreters = 5,
                          .next_interpreter = 8,
                          .threads = 9,
                          .next_thread = 24,
                          .frame = 26,
                          .thread_id = 27,
                          .back = 32,
                          .code = 33,
                          .instruction = 34,
                          .owner = 36,
                          .file = 40,
                          .name = 42,
                          .line_table = 43,
                          .first_line = 44,
                          .instructions = 48,
                          .type = 51,
                          .bytes_length = 75,
                          .bytes_begin = 76,
                          .text_state = 78,
                          .text_length = 79,
                          .text_ascii = 80};
constexpr std::size_t kMostWords = 81;
constexpr std::uint32_t kFirstTold = 13;
constexpr Words kTold[] = {kWords313, kWords314};

bool read_told(const Words& words, std::uint32_t version, Address runtime,
               unwind::ScatteredMemory& memory, Layout* layout) noexcept {
  constexpr std::uint64_t kMostOffset = std::uint64_t{1} << 24;
  std::uint64_t told[kMostWords];
  if (!memory.copy(runtime, told, sizeof told)) return false;
  if (memcmp(told, "xdebugpy", 8) != 0 || told[1] != version) return false;
  bool is_sound = true;
  const auto offset = [&](unsigned word) {
    is_sound = is_sound && told[word] < kMostOffset;
    return static_cast<std::uint32_t>(told[word]);
  };
  *layout = {.lines = Lines::locations,
             .entry = Entry::owned,
             .has_c_frame = false,
             .c_frame_frame = 0,
             .interpreters = offset(words.interpreters),
             .next_interpreter = offset(words.next_interpreter),
             .threads = offset(words.threads),
             .next_thread = offset(words.next_thread),
             .thread_id = offset(words.thread_id),
             .thread_frame = offset(words.frame),
             .code = offset(words.code),
             .back = offset(words.back),
             .instruction = offset(words.instruction),
             .owner = offset(words.owner),
             .first_line = offset(words.first_line),
             .file = offset(words.file),
             .name = offset(words.name),
             .line_table = offset(words.line_table),
             .instructions = offset(words.instructions),
             .type = offset(words.type),
             .text_length = offset(words.text_length),
             .text_state = offset(words.text_state),
             .text_ascii = offset(words.text_ascii),
             // Behind the length and the address of UTF-8.
             .text_compact = offset(words.text_ascii) + 16,
             .bytes_length = offset(words.bytes_length),
             .bytes_begin = offset(words.bytes_begin)};
  return is_sound;
}

}  // namespace

bool find_layout(std::uint32_t version, Address runtime, unwind::ScatteredMemory& memory,
                 Layout* layout) noexcept {
  if (version >> 24 != 3) return false;
  const std::uint32_t minor = version >> 16 & 0xff;
  if (minor >= kFirstKnown && minor < kFirstKnown + std::size(kKnown)) {
    *layout = kKnown[minor - kFirstKnown];
    return true;
  }
  if (minor < kFirstTold || minor >= kFirstTold + std::size(kTold)) return false;
  return read_told(kTold[minor - kFirstTold], version, runtime, memory, layout);
}

}  // namespace allod::python
