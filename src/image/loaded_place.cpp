#include "image/loaded_place.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "allod/base/auxiliary.hpp"
#include "allod/base/cpu.hpp"
#include "allod/os/linux/calls.hpp"
#include "allod/os/linux/symbol_table.hpp"

namespace allod {

namespace {

[[nodiscard]] bool ask_dladdr(Address at, LoadedPlace* place) noexcept {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(at), &info) == 0) return false;
  *place = {.file = info.dli_fname,
            .file_base = address_of(info.dli_fbase),
            .name = info.dli_sname,
            .name_begin = address_of(info.dli_saddr)};
  return true;
}

}  // namespace

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// Weak: the program may run with an older libc.
#pragma weak _dl_find_object

namespace {

// Finds the nearest exported symbol at or below an address.
void find_name(const dl_find_object& object, Address at, LoadedPlace* place) noexcept {
  const Address begin = address_of(object.dlfo_map_start);
  const Address end = address_of(object.dlfo_map_end);
  const Address bias = object.dlfo_link_map->l_addr;
  // The loader relocates these entries in place, unless the dynamic section is read-only.
  const auto address_of_table = [&](Address table) noexcept {
    if (table < begin) table += bias;
    return table >= begin && table < end ? table : Address{0};
  };
  const ElfW(Sym)* found = nullptr;
  const os::SymbolTable symbols{object.dlfo_link_map->l_ld, address_of_table};
  symbols.for_each([&](const ElfW(Sym) & symbol, const char* name) noexcept {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS) return;
    const Address offset = at - bias - symbol.st_value;
    const bool is_inside = symbol.st_size == 0 ? offset == 0 : offset < symbol.st_size;
    if (!is_inside || (found != nullptr && found->st_value >= symbol.st_value)) return;
    found = &symbol;
    place->name = name;
    place->name_begin = bias + symbol.st_value;
  });
}

// Reads the build id from the object's notes, if its program headers lie in the first page.
void find_build_id(const dl_find_object& object, LoadedPlace* place) noexcept {
  constexpr std::size_t kFirstPage = 4096;
  constexpr char kName[4] = "GNU";
  const Address begin = address_of(object.dlfo_map_start);
  const Address end = address_of(object.dlfo_map_end);
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(begin);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  if (header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > kFirstPage) return;
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(begin + header->e_phoff);
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    const std::size_t alignment = segments[i].p_align == 8 ? 8 : 4;
    Address at = object.dlfo_link_map->l_addr + segments[i].p_vaddr;
    const Address behind = at + segments[i].p_memsz;
    while (at >= begin && behind <= end && at + sizeof(ElfW(Nhdr)) < behind) {
      const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
      const Address name = at + sizeof note;
      const Address content = align_up(name + note.n_namesz, alignment);
      at = align_up(content + note.n_descsz, alignment);
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof kName || at > behind) continue;
      if (memcmp(reinterpret_cast<const char*>(name), kName, sizeof kName) != 0) continue;
      place->build_id = reinterpret_cast<const unsigned char*>(content);
      place->build_id_bytes = note.n_descsz;
      return;
    }
  }
}

[[nodiscard]] bool look_up(const char* path, struct stat64* file) noexcept {
  return raw_syscall(os::calls::kStatusOfPath, AT_FDCWD, reinterpret_cast<long>(path),
                     reinterpret_cast<long>(file), 0) == 0;
}
[[nodiscard]] bool is_program(const char* path) noexcept {
  struct stat64 own{};
  struct stat64 other{};
  return look_up("/proc/self/exe", &own) && look_up(path, &other) && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

// The path that was executed. argv[0] may be anything. For a script, AT_EXECFN is the script, and
// argv[0] is the interpreter's path.
[[nodiscard]] const char* path_of_program() noexcept {
  const auto* const executed = reinterpret_cast<const char*>(Auxiliary::value(AT_EXECFN));
  const char* const called = program_invocation_name;
  if (executed == nullptr) return called;
  const bool may_be_interpreter = strchr(called, '/') != nullptr && strcmp(called, executed) != 0;
  return may_be_interpreter && is_program(called) ? called : executed;
}

}  // namespace

bool find_loaded_place(Address at, LoadedPlace* place) noexcept {
  if (&_dl_find_object == nullptr) return ask_dladdr(at, place);
  dl_find_object object;
  if (_dl_find_object(reinterpret_cast<void*>(at), &object) != 0) return false;
  const char* const file = object.dlfo_link_map->l_name;
  *place = {.file = *file != '\0' ? file : path_of_program(),
            .file_base = object.dlfo_link_map->l_addr,
            .file_end = address_of(object.dlfo_map_end)};
  find_name(object, at, place);
  find_build_id(object, place);
  return true;
}

#else

bool find_loaded_place(Address at, LoadedPlace* place) noexcept { return ask_dladdr(at, place); }

#endif

}  // namespace allod
