// liballod-copies.so: checked versions of libc's copying functions. A copy that would cross the end
// of the block that it reads or writes is reported and not done, or done as far as the block
// reaches.
//
// It is a library of its own, so that only programs that ask for it pay. Allod's libraries do not
// know it. Functions that may run before relocation, or before the constructor, use neither libc
// nor relocations.
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "allod.h"

// Absent if the library is preloaded without Allod.
extern "C" {
[[gnu::weak]] size_t allod_room(const void* address, size_t bytes) noexcept;
[[gnu::weak]] void allod_report_copy(const void* address, size_t bytes, int writes,
                                     const char* function) noexcept;
// libc's reaction to a failed fortify check.
[[gnu::weak]] void __chk_fail();  // NOLINT(bugprone-reserved-identifier)
}

namespace {

#define ALLOD_INLINE_HERE [[gnu::always_inline]] inline

// --- tools ---------------------------------------------------------------------------------------

struct Tools {
  void* (*move)(void*, const void*, size_t);
  void* (*set)(void*, int, size_t);
  size_t (*length)(const char*);
  size_t (*length_within)(const char*, size_t);
  size_t (*room)(const void*, size_t);
};
// `ready` is written last, so tools are complete once it is true.
constinit Tools tools{};
constinit bool ready = false;
// Allod's own image. Its code writes behind blocks and clears free ones, and is not checked.
constinit uintptr_t allod_begin = 0;
constinit uintptr_t allod_end = 0;

[[gnu::noinline]] void* move_plainly(void* to, const void* from, size_t bytes) {
  auto* const out = static_cast<unsigned char*>(to);
  const auto* const in = static_cast<const unsigned char*>(from);
  if (out <= in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    while (bytes-- > 0) out[bytes] = in[bytes];
  }
  return to;
}
[[gnu::noinline]] void* set_plainly(void* to, int byte, size_t bytes) {
  auto* const out = static_cast<volatile unsigned char*>(to);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(byte);
  return to;
}
ALLOD_INLINE_HERE void* move(void* to, const void* from, size_t bytes) {
  return __builtin_expect(ready, 1) ? tools.move(to, from, bytes) : move_plainly(to, from, bytes);
}
ALLOD_INLINE_HERE void set(void* to, int byte, size_t bytes) {
  __builtin_expect(ready, 1) ? tools.set(to, byte, bytes) : set_plainly(to, byte, bytes);
}
ALLOD_INLINE_HERE size_t length_within(const char* text, size_t most) {
  if (__builtin_expect(ready, 1)) {
    return most == SIZE_MAX ? tools.length(text) : tools.length_within(text, most);
  }
  size_t length = 0;
  while (length != most && text[length] != '\0') ++length;
  return length;
}

// --- checks --------------------------------------------------------------------------------------

enum class Access { read, write };

// Reports, and returns the number of bytes that are allowed.
[[gnu::cold, gnu::noinline]] size_t refuse(const void* at, size_t bytes, size_t room, Access access,
                                           const char* function, const void* caller) {
  if (reinterpret_cast<uintptr_t>(caller) - allod_begin < allod_end - allod_begin) return bytes;
  allod_report_copy(at, bytes, access == Access::write, function);
  return room;
}
// To be called only if `ready`.
ALLOD_INLINE_HERE size_t checked(const void* at, size_t bytes, Access access,
                                 const char* function) {
  const size_t room = tools.room(at, bytes);
  if (__builtin_expect(room >= bytes, 1)) return bytes;
  return refuse(at, bytes, room, access, function, __builtin_return_address(0));
}
ALLOD_INLINE_HERE size_t room_at(const void* at) {
  return __builtin_expect(ready, 1) ? tools.room(at, SIZE_MAX) : SIZE_MAX;
}

// Finds the length of a text, at most `most`. Returns false, after a report, if the text does not
// end within its block.
ALLOD_INLINE_HERE bool find_end(const char* text, size_t most, const char* function,
                                size_t* length) {
  const size_t room = room_at(text);
  *length = length_within(text, room < most ? room : most);
  if (__builtin_expect(*length != room || *length == most, 1)) return true;
  refuse(text, *length + 1, room, Access::read, function, __builtin_return_address(0));
  return false;
}
ALLOD_INLINE_HERE size_t checked_length(const char* text, size_t most, const char* function) {
  size_t length;
  static_cast<void>(find_end(text, most, function, &length));
  return length;
}

// The fortify check of the destination's size, as far as the compiler knew it.
ALLOD_INLINE_HERE void must_hold(size_t room, size_t bytes) {
  if (__builtin_expect(room >= bytes, 1)) return;
  if (__chk_fail != nullptr) __chk_fail();
  abort();
}

// --- shared bodies -------------------------------------------------------------------------------

// Returns `to`.
ALLOD_INLINE_HERE void* copy(void* to, const void* from, size_t bytes, const char* function) {
  if (__builtin_expect(!ready, 0)) return move_plainly(to, from, bytes);
  bytes = checked(to, bytes, Access::write, function);
  return tools.move(to, from, checked(from, bytes, Access::read, function));
}
ALLOD_INLINE_HERE void* fill(void* to, int byte, size_t bytes, const char* function) {
  if (__builtin_expect(!ready, 0)) return set_plainly(to, byte, bytes);
  return tools.set(to, byte, checked(to, bytes, Access::write, function));
}

// Writes a text and a terminating zero. Returns the address of the zero.
ALLOD_INLINE_HERE char* put_text(char* to, const char* from, size_t length, const char* function) {
  const size_t bytes = ready ? checked(to, length + 1, Access::write, function) : length + 1;
  if (bytes == 0) return to;
  move(to, from, bytes - 1);
  to[bytes - 1] = '\0';
  return to + bytes - 1;
}
ALLOD_INLINE_HERE char* copy_text(char* to, const char* from, const char* function) {
  return put_text(to, from, checked_length(from, SIZE_MAX, function), function);
}
// Writes nothing if `to` has no terminating zero within its block.
ALLOD_INLINE_HERE void append_text(char* to, const char* from, size_t most, const char* function,
                                   size_t known_room = SIZE_MAX) {
  size_t before;
  if (!find_end(to, SIZE_MAX, function, &before)) return;
  const size_t length = checked_length(from, most, function);
  must_hold(known_room, before + length + 1);
  put_text(to + before, from, length, function);
}
// Copies up to `bytes` of a text, and pads with zeros.
ALLOD_INLINE_HERE void copy_field(char* to, const char* from, size_t bytes, const char* function) {
  const size_t length = checked_length(from, bytes, function);
  if (ready) bytes = checked(to, bytes, Access::write, function);
  const size_t copied = length < bytes ? length : bytes;
  move(to, from, copied);
  set(to + copied, 0, bytes - copied);
}

// --- start ---------------------------------------------------------------------------------------

int find_allod(struct dl_phdr_info* info, size_t, void*) {
  const auto inside = reinterpret_cast<uintptr_t>(&allod_room);
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t from = info->dlpi_addr + part.p_vaddr;
    if (from < begin) begin = from;
    if (from + part.p_memsz > end) end = from + part.p_memsz;
  }
  if (inside < begin || inside >= end) return 0;
  allod_begin = begin;
  allod_end = end;
  return 1;
}

template <class Function>
[[nodiscard]] bool find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return function != nullptr;
}

// If one function is missing, nothing is checked.
[[gnu::constructor(102)]] void start() {
  if (allod_room == nullptr || allod_report_copy == nullptr) return;
  tools.room = allod_room;
  // memmove also serves memcpy: old programs rely on a memcpy that tolerates overlap.
  const bool found = find(tools.move, "memmove") && find(tools.set, "memset") &&
                     find(tools.length, "strlen") && find(tools.length_within, "strnlen");
  if (!found) return;
  dl_iterate_phdr(&find_allod, nullptr);
  __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
}

}  // namespace

// --- exported names ------------------------------------------------------------------------------

#define ALLOD_EXPORT [[gnu::visibility("default")]]

// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

ALLOD_EXPORT void* memcpy(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, "memcpy");
}
ALLOD_EXPORT void* memmove(void* to, const void* from, size_t bytes) {
  return copy(to, from, bytes, "memmove");
}
ALLOD_EXPORT void* mempcpy(void* to, const void* from, size_t bytes) {
  copy(to, from, bytes, "mempcpy");
  return static_cast<char*>(to) + bytes;
}
ALLOD_EXPORT void* memset(void* to, int byte, size_t bytes) {
  return fill(to, byte, bytes, "memset");
}
ALLOD_EXPORT char* strcpy(char* to, const char* from) {
  copy_text(to, from, "strcpy");
  return to;
}
ALLOD_EXPORT char* stpcpy(char* to, const char* from) { return copy_text(to, from, "stpcpy"); }
ALLOD_EXPORT char* strncpy(char* to, const char* from, size_t bytes) {
  copy_field(to, from, bytes, "strncpy");
  return to;
}
ALLOD_EXPORT char* strcat(char* to, const char* from) {
  append_text(to, from, SIZE_MAX, "strcat");
  return to;
}
ALLOD_EXPORT char* strncat(char* to, const char* from, size_t most) {
  append_text(to, from, most, "strncat");
  return to;
}

ALLOD_EXPORT void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t room) {
  must_hold(room, bytes);
  return copy(to, from, bytes, "memcpy");
}
ALLOD_EXPORT void* __memmove_chk(void* to, const void* from, size_t bytes, size_t room) {
  must_hold(room, bytes);
  return copy(to, from, bytes, "memmove");
}
ALLOD_EXPORT void* __mempcpy_chk(void* to, const void* from, size_t bytes, size_t room) {
  must_hold(room, bytes);
  copy(to, from, bytes, "mempcpy");
  return static_cast<char*>(to) + bytes;
}
ALLOD_EXPORT void* __memset_chk(void* to, int byte, size_t bytes, size_t room) {
  must_hold(room, bytes);
  return fill(to, byte, bytes, "memset");
}
ALLOD_EXPORT char* __strcpy_chk(char* to, const char* from, size_t room) {
  const size_t length = checked_length(from, SIZE_MAX, "strcpy");
  must_hold(room, length + 1);
  put_text(to, from, length, "strcpy");
  return to;
}
ALLOD_EXPORT char* __stpcpy_chk(char* to, const char* from, size_t room) {
  const size_t length = checked_length(from, SIZE_MAX, "stpcpy");
  must_hold(room, length + 1);
  return put_text(to, from, length, "stpcpy");
}
ALLOD_EXPORT char* __strncpy_chk(char* to, const char* from, size_t bytes, size_t room) {
  must_hold(room, bytes);
  copy_field(to, from, bytes, "strncpy");
  return to;
}
ALLOD_EXPORT char* __strncat_chk(char* to, const char* from, size_t most, size_t room) {
  append_text(to, from, most, "strncat", room);
  return to;
}
ALLOD_EXPORT char* __strcat_chk(char* to, const char* from, size_t room) {
  append_text(to, from, SIZE_MAX, "strcat", room);
  return to;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
