#include "symbols.hpp"

#include <backtrace.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "code_maps.hpp"
#include "library.hpp"
#include "memory.hpp"
#include "system.hpp"
#include "text/demangle.hpp"

extern "C" {
// libstdc++'s demangler, which does not allocate.
int __gcclibcxx_demangle_callback(const char* name, void (*take)(const char*, size_t, void*),
                                  void* context);
int __real_dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* context);
int __wrap_dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* context);
void* __real_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void* at, size_t size);
int __wrap_munmap(void* at, size_t size);
}

namespace allod::live {

namespace {

constexpr std::size_t kMoreModules = 16;
constexpr std::size_t kMostHeaders = 16;
constexpr std::uint64_t kRefreshMs = 5'000;
// What was quick to read is given back at once, the rest when nobody has asked for this long.
constexpr std::uint64_t kQuickMs = 100;
constexpr std::uint64_t kIdleMs = 10'000;

// A module as the loader reports it: copied under its lock, read afterwards.
struct Loaded {
  dl_phdr_info info;
  ElfW(Phdr) headers[kMostHeaders];
  char path[sizeof Module::path];
};

struct Text {
  std::size_t from;
  std::size_t length;
};
struct KnownPlace {
  Text function;
  Text file;
  unsigned line;
};
struct KnownAddress {
  std::uintptr_t address;
  std::size_t first;  // of its places
  std::size_t count;
  std::size_t code_known;  // without a name: what refresh_code_maps() told then; else kNamed
};
constexpr std::size_t kNamed = SIZE_MAX;

struct Mapping {
  std::uintptr_t from;
  std::uintptr_t to;
};

// What libbacktrace has read of one module. It cannot release a state, so all of its memory, which
// it maps itself, is noted and unmapped.
struct Reader {
  std::uintptr_t bias = 0;
  backtrace_state* state = nullptr;
  std::uint64_t used_ms = 0;
  std::uint64_t took_ms = 0;  // of this thread's time, to begin
  Table<Mapping> mappings;
};

struct Symbols {
  Table<Loaded> loaded;
  Table<Module> modules;
  std::uint64_t refreshed_ms = 0;
  Table<Reader*> readers;
  // While libbacktrace runs: for whom, and which module it may see.
  Reader* reader = nullptr;
  const Loaded* visible = nullptr;
  Table<KnownAddress> known;  // by address
  Table<KnownPlace> places;
  Table<char> texts;
  Table<Text> slots;  // texts by hash; length 0: empty
  std::size_t used_slots = 0;
};

constinit Lasting<Symbols> lasting_symbols;
constinit std::size_t mapped = 0;  // by libbacktrace, all together
Symbols& self() noexcept { return lasting_symbols.value; }

// Held during dl_iterate_phdr and fork: the loader's lock is not reset in the child, so no thread
// may hold it at a fork. Nothing is allocated while this mutex is held.
constinit pthread_mutex_t loader_mutex = PTHREAD_MUTEX_INITIALIZER;

void visit_modules(int (*visit)(dl_phdr_info*, size_t, void*), void* context) noexcept {
  pthread_mutex_lock(&loader_mutex);
  __real_dl_iterate_phdr(visit, context);
  pthread_mutex_unlock(&loader_mutex);
}

int copy_module(dl_phdr_info* info, size_t, void* context) noexcept {
  auto& loaded = *static_cast<Table<Loaded>*>(context);
  if (!loaded.has_room() || !loaded.push({})) return 1;
  Loaded& to = loaded.back();
  const std::size_t headers = std::min<std::size_t>(info->dlpi_phnum, kMostHeaders);
  to.info = *info;
  to.info.dlpi_phnum = static_cast<ElfW(Half)>(headers);
  memcpy(to.headers, info->dlpi_phdr, headers * sizeof *to.headers);
  snprintf(to.path, sizeof to.path, "%s", info->dlpi_name);
  return 0;
}

// By the kernel, since a module may be unloaded at any time.
bool read_memory(std::uintptr_t from, void* to, std::size_t size) noexcept {
  const iovec ours{to, size};
  const iovec theirs{reinterpret_cast<void*>(from), size};
  return process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(size);
}

// Finds the "GNU" build id among an ELF file's notes.
void find_build_id(Module& module, const char* notes, std::size_t size) noexcept {
  const auto padded = [](std::size_t length) { return (length + 3) & ~std::size_t{3}; };
  ElfW(Nhdr) note;
  for (std::size_t at = 0; at + sizeof note <= size;) {
    memcpy(&note, notes + at, sizeof note);
    const std::size_t body = at + sizeof note + padded(note.n_namesz);
    if (body + note.n_descsz > size) return;
    const bool is_id = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz <= 20;
    if (is_id && memcmp(notes + at + sizeof note, "GNU", 4) == 0) {
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        snprintf(module.build_id + 2 * i, 3, "%02x", static_cast<unsigned char>(notes[body + i]));
      }
      return;
    }
    at = body + padded(note.n_descsz);
  }
}

Module describe(const Loaded& loaded) noexcept {
  Module module{};
  module.bias = loaded.info.dlpi_addr;
  for (std::size_t i = 0; i < loaded.info.dlpi_phnum; ++i) {
    const auto& header = loaded.headers[i];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
      const std::uintptr_t from = module.bias + header.p_vaddr;
      if (module.from == 0) {
        module.from = from;
        module.offset = header.p_offset;
      }
      module.to = from + header.p_memsz;
    } else if (header.p_type == PT_NOTE && module.build_id[0] == '\0') {
      char notes[1024];
      const std::size_t size = std::min<std::size_t>(header.p_memsz, sizeof notes);
      if (read_memory(module.bias + header.p_vaddr, notes, size)) {
        find_build_id(module, notes, size);
      }
    }
  }
  memcpy(module.path, loaded.path, sizeof module.path);
  if (module.path[0] == '\0') {
    const ssize_t length = readlink("/proc/self/exe", module.path, sizeof module.path - 1);
    module.path[length > 0 ? length : 0] = '\0';
  }
  return module;
}

std::string_view kept(Text text) noexcept {
  return {self().texts.begin() + text.from, text.length};
}

// The slot that holds the text, or would hold it.
Text* slot_of(std::string_view text) noexcept {
  Table<Text>& slots = self().slots;
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::size_t at = hash & (slots.size() - 1);
  while (slots[at].length != 0 && kept(slots[at]) != text) at = (at + 1) & (slots.size() - 1);
  return &slots[at];
}

bool make_room_for_slot() noexcept {
  Symbols& symbols = self();
  if ((symbols.used_slots + 1) * 2 <= symbols.slots.size()) return true;
  Table<Text> before;
  if (!before.set_size(symbols.slots.empty() ? 1024 : symbols.slots.size() * 2)) return false;
  before.swap(symbols.slots);
  for (const Text text : before) {
    if (text.length != 0) *slot_of(kept(text)) = text;
  }
  return true;
}

// Stores each distinct text once, so its position identifies it.
Text keep(std::string_view text) noexcept {
  Symbols& symbols = self();
  if (text.empty() || !make_room_for_slot()) return {0, 0};
  Text* const slot = slot_of(text);
  if (slot->length != 0) return *slot;
  const Text fresh{symbols.texts.size(), text.size()};
  if (!symbols.texts.set_size(fresh.from + fresh.length)) return {0, 0};
  memcpy(symbols.texts.begin() + fresh.from, text.data(), text.size());
  ++symbols.used_slots;
  return *slot = fresh;
}

Text keep_demangled(const char* name) noexcept {
  char room[2000];
  Bounded other{room, sizeof room};
  if (!is_mangled(name)) return keep(name);
  if (name[1] == 'R') return keep(demangle_rust(name, other) ? other.text() : name);
  if (name[1] == 'D') return keep(demangle_d(name, other) ? other.text() : name);
  Table<char> plain;
  const auto take = [](const char* piece, size_t length, void* context) {
    auto& to = *static_cast<Table<char>*>(context);
    const std::size_t before = to.size();
    if (to.set_size(before + length)) memcpy(to.begin() + before, piece, length);
  };
  if (__gcclibcxx_demangle_callback(name, take, &plain) != 0) return keep(name);
  const std::string_view text{plain.begin(), plain.size()};
  return keep(text.size() < sizeof room && decode_old_rust(text, other) ? other.text() : text);
}

void add_place(const char* function, const char* file, int line) noexcept {
  const Text in = file == nullptr ? Text{0, 0} : keep(file);
  static_cast<void>(self().places.push(
      {keep_demangled(function), in, line > 0 ? static_cast<unsigned>(line) : 0}));
}

// The module's place in the list; its length if no module has the address.
std::size_t module_of(std::uintptr_t address) noexcept {
  const Table<Loaded>& all = self().loaded;
  const auto has = [&](const Loaded& module) {
    return std::any_of(module.headers, module.headers + module.info.dlpi_phnum,
                       [&](const ElfW(Phdr) & header) {
                         const std::uintptr_t from = module.info.dlpi_addr + header.p_vaddr;
                         return header.p_type == PT_LOAD && address - from < header.p_memsz;
                       });
  };
  const auto found = std::find_if(all.begin(), all.end(), has);
  return std::min(static_cast<std::size_t>(found - all.begin()), self().modules.size());
}

void add_nameless(std::uintptr_t address) noexcept {
  const std::size_t place = module_of(address);
  if (place < self().modules.size()) {
    const Module& module = self().modules[place];
    const char* const slash = strrchr(module.path, '/');
    char text[300];
    snprintf(text, sizeof text, "%s+0x%zx", slash != nullptr ? slash + 1 : module.path,
             address - module.bias);
    return add_place(text, nullptr, 0);
  }
  char text[32];
  snprintf(text, sizeof text, "0x%zx", address);
  add_place(text, nullptr, 0);
}

void ignore_error(void*, const char*, int) noexcept {}

int take_line(void*, uintptr_t, const char* file, int line, const char* function) noexcept {
  if (function != nullptr) add_place(function, file, line);
  return 0;
}
// Debug information has only the bare name of functions without linkage; the symbol has the full
// one. It belongs to the last place, into which the others were inlined.
void take_symbol(void* context, uintptr_t, const char* name, uintptr_t, uintptr_t) noexcept {
  if (name == nullptr) return;
  Table<KnownPlace>& places = self().places;
  if (places.size() == *static_cast<std::size_t*>(context)) {
    add_place(name, nullptr, 0);
  } else if (is_mangled(name)) {
    places.back().function = keep_demangled(name);
  }
}

// Null if memory is exhausted.
Reader* reader_of(const Loaded& module) noexcept {
  Symbols& symbols = self();
  for (Reader* const reader : symbols.readers) {
    if (reader->bias == module.info.dlpi_addr) return reader;
  }
  void* const memory = allocate(sizeof(Reader));
  if (memory == nullptr) return nullptr;
  auto* const reader = new (memory) Reader;
  reader->bias = module.info.dlpi_addr;
  if (symbols.readers.push(reader)) return reader;
  release(reader);
  return nullptr;
}

void drop(Reader* reader) noexcept {
  for (const Mapping& each : reader->mappings) {
    const std::size_t size = each.to - each.from;
    if (__real_munmap(reinterpret_cast<void*>(each.from), size) == 0) mapped -= size;
  }
  reader->~Reader();
  release(reader);
}

// Adds what the module's file tells about the address.
void read_places(Reader& reader, const Module& module, std::uintptr_t call) noexcept {
  Symbols& symbols = self();
  symbols.reader = &reader;
  const std::uint64_t start = thread_time_ms();
  const bool begins = reader.state == nullptr;
  if (begins) reader.state = backtrace_create_state(module.path, 0, &ignore_error, nullptr);
  std::size_t before = symbols.places.size();
  if (reader.state != nullptr) {
    backtrace_pcinfo(reader.state, call, &take_line, &ignore_error, nullptr);
    backtrace_syminfo(reader.state, call, &take_symbol, &ignore_error, &before);
  }
  reader.used_ms = now_ms();
  if (begins) reader.took_ms = thread_time_ms() - start;
  symbols.reader = nullptr;
}

// Names a function of an interpreter.
bool add_function(std::uintptr_t frame) noexcept {
  allod_profile_function_t function{};
  if (&allod_profile_function_get == nullptr ||
      allod_profile_function_get(frame, &function, sizeof function) != 0) {
    return false;
  }
  add_place(function.name, function.file, static_cast<int>(function.line));
  return true;
}

// Names code that is in no module.
bool add_code(std::uintptr_t address) noexcept {
  CodeName name;
  if (!find_code(address, &name)) return false;
  add_place(name.function, name.file, name.line);
  return true;
}

void look_up_in_modules(std::uintptr_t address) noexcept {
  Symbols& symbols = self();
  const std::size_t before = symbols.places.size();
  // The call instruction, not the return address.
  const std::uintptr_t call = address - 1;
  const std::size_t place = module_of(call);
  if (place < symbols.modules.size()) {
    symbols.visible = &symbols.loaded[place];
    Reader* const reader = reader_of(*symbols.visible);
    if (reader != nullptr) read_places(*reader, symbols.modules[place], call);
    symbols.visible = nullptr;
  }
  if (symbols.places.size() == before) add_nameless(call);
}

bool is_in_a_module(std::uintptr_t address) noexcept {
  return module_of(address) < self().modules.size();
}

// Up to whole pages.
std::uintptr_t in_pages(std::uintptr_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Forgets a range of the reader's memory.
void cut_out(Table<Mapping>& mappings, const Mapping& gone) noexcept {
  for (std::size_t i = mappings.size(); i-- > 0;) {
    const Mapping whole = mappings[i];
    if (gone.to <= whole.from || gone.from >= whole.to) continue;
    mappings.remove(i);
    // There is room: for one in place of the whole, and for another (__wrap_munmap).
    if (whole.from < gone.from) static_cast<void>(mappings.push({whole.from, gone.from}));
    if (gone.to < whole.to) static_cast<void>(mappings.push({gone.to, whole.to}));
  }
}

// Returns kNamed or, if it may get a name later, how much code has one.
std::size_t look_up(std::uintptr_t address) noexcept {
  if (add_function(address)) return kNamed;
  if (self().modules.empty()) refresh_modules();
  if (!is_in_a_module(address)) {
    const std::size_t known = refresh_code_maps();
    if (add_code(address - 1)) return kNamed;
    look_up_in_modules(address);
    return known;
  }
  look_up_in_modules(address);
  return kNamed;
}

}  // namespace

void refresh_modules() noexcept {
  Symbols& symbols = self();
  const auto count_one = [](dl_phdr_info*, size_t, void* count) {
    ++*static_cast<std::size_t*>(count);
    return 0;
  };
  std::size_t count = 0;
  visit_modules(count_one, &count);
  // Some may be loaded between the two visits. They are found the next time.
  if (!symbols.loaded.reserve(count + kMoreModules)) return;
  symbols.loaded.clear();
  visit_modules(&copy_module, &symbols.loaded);
  symbols.modules.clear();
  for (Loaded& loaded : symbols.loaded) {
    loaded.info.dlpi_phdr = loaded.headers;
    loaded.info.dlpi_name = loaded.path;
    static_cast<void>(symbols.modules.push(describe(loaded)));
  }
  symbols.refreshed_ms = now_ms();
}

const Module* modules(std::size_t* count) noexcept {
  *count = self().modules.size();
  return self().modules.begin();
}

void find_places(std::uintptr_t address, PlaceVisit visit, void* context) noexcept {
  Symbols& symbols = self();
  const auto by_address = [](const KnownAddress& row, std::uintptr_t key) {
    return row.address < key;
  };
  auto found = std::lower_bound(symbols.known.begin(), symbols.known.end(), address, by_address);
  const bool is_known = found != symbols.known.end() && found->address == address;
  if (is_known && found->code_known != kNamed && refresh_code_maps() > found->code_known) {
    const std::size_t first = symbols.places.size();
    const std::size_t code_known = look_up(address);
    *found = {address, first, symbols.places.size() - first, code_known};
  }
  if (!is_known) {
    const bool may_be_new = now_ms() > symbols.refreshed_ms + kRefreshMs;
    if (may_be_new && !is_in_a_module(address)) refresh_modules();
    const std::size_t first = symbols.places.size();
    const std::size_t code_known = look_up(address);
    const KnownAddress row{address, first, symbols.places.size() - first, code_known};
    const auto at = static_cast<std::size_t>(found - symbols.known.begin());
    if (!symbols.known.push(row)) return;
    std::rotate(symbols.known.begin() + at, symbols.known.end() - 1, symbols.known.end());
    found = symbols.known.begin() + at;
  }
  for (std::size_t i = 0; i < found->count; ++i) {
    const KnownPlace& place = symbols.places[found->first + i];
    visit({place.function.from, kept(place.function), kept(place.file), place.line}, context);
  }
}

void settle_symbols() noexcept {
  Table<Reader*>& readers = self().readers;
  for (std::size_t i = readers.size(); i-- > 0;) {
    const bool is_quick = readers[i]->took_ms <= kQuickMs;
    if (!is_quick && now_ms() < readers[i]->used_ms + kIdleMs) continue;
    drop(readers[i]);
    readers.remove(i);
  }
}

std::size_t symbol_bytes() noexcept { return mapped; }

void hold_symbols() noexcept { pthread_mutex_lock(&loader_mutex); }
void let_go_symbols() noexcept { pthread_mutex_unlock(&loader_mutex); }
void drop_symbols() noexcept {
  loader_mutex = PTHREAD_MUTEX_INITIALIZER;
  new (&lasting_symbols.value) Symbols;
  drop_code_maps();
}

}  // namespace allod::live

// For libbacktrace, which reads whole files in the callback: visits the copy of the one module that
// is asked about, without the loader's lock.
int __wrap_dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* context) {
  const auto* const visible = allod::live::self().visible;
  if (visible == nullptr) return 0;
  dl_phdr_info info = visible->info;
  return visit(&info, sizeof info, context);
}

// Note libbacktrace's memory.
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  auto* const reader = allod::live::self().reader;
  // Room for a part that a later munmap() may leave.
  if (reader == nullptr || !reader->mappings.reserve_for(2)) return MAP_FAILED;
  void* const mapped = __real_mmap(at, size, protection, flags, file, offset);
  if (mapped == MAP_FAILED) return mapped;
  const auto from = reinterpret_cast<std::uintptr_t>(mapped);
  static_cast<void>(reader->mappings.push({from, allod::live::in_pages(from + size)}));
  allod::live::mapped += allod::live::in_pages(size);
  return mapped;
}
int __wrap_munmap(void* at, size_t size) {
  auto* const reader = allod::live::self().reader;
  if (reader == nullptr || !reader->mappings.reserve_for(1)) return -1;
  const int result = __real_munmap(at, size);
  if (result != 0) return result;
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  allod::live::cut_out(reader->mappings, {from, allod::live::in_pages(from + size)});
  allod::live::mapped -= allod::live::in_pages(size);
  return result;
}
