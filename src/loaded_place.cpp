#include "loaded_place.hpp"

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

// An older libc may be there when the program runs.
#pragma weak _dl_find_object

namespace {

// The dynamic symbols of an object, by what its own table of contents says.
class Symbols {
 public:
  explicit Symbols(const dl_find_object& object) noexcept
      : begin_{address_of(object.dlfo_map_start)},
        end_{address_of(object.dlfo_map_end)},
        bias_{object.dlfo_link_map->l_addr} {
    const ElfW(Dyn)* entry = object.dlfo_link_map->l_ld;
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      const Address at = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) table_ = table_at<ElfW(Sym)>(at);
      if (entry->d_tag == DT_STRTAB) names_ = table_at<char>(at);
      if (entry->d_tag == DT_GNU_HASH) hash_ = table_at<std::uint32_t>(at);
      if (entry->d_tag == DT_HASH) old_hash_ = table_at<std::uint32_t>(at);
    }
  }

  void find(Address at, LoadedPlace* place) const noexcept {
    if (table_ == nullptr || names_ == nullptr) return;
    const ElfW(Sym)* found = nullptr;
    const auto look = [&](const ElfW(Sym) & symbol) noexcept {
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) == STT_TLS) return;
      const Address offset = at - bias_ - symbol.st_value;
      const bool is_inside = symbol.st_size == 0 ? offset == 0 : offset < symbol.st_size;
      if (is_inside && (found == nullptr || found->st_value < symbol.st_value)) found = &symbol;
    };
    hash_ != nullptr ? visit_buckets(look) : visit_all(look);
    if (found == nullptr) return;
    place->name = names_ + found->st_name;
    place->name_begin = bias_ + found->st_value;
  }

 private:
  // The loader has made an address of it, but not where the table of contents cannot be written to.
  template <class T>
  [[nodiscard]] const T* table_at(Address at) const noexcept {
    if (at < begin_) at += bias_;
    return at >= begin_ && at < end_ ? reinterpret_cast<const T*>(at) : nullptr;
  }
  // Each bucket leads to a chain of symbols that lie in a row; the last one's hash is odd.
  template <class Look>
  void visit_buckets(Look&& look) const noexcept {
    const std::uint32_t buckets = hash_[0];
    const std::uint32_t first = hash_[1];
    const std::uint32_t filter_words = hash_[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* const bucket = hash_ + 4 + filter_words;
    const std::uint32_t* const chain = bucket + buckets;
    for (std::uint32_t i = 0; i < buckets; ++i) {
      std::uint32_t number = bucket[i];
      if (number == 0 || number < first) continue;
      do look(table_[number]);
      while ((chain[number++ - first] & 1) == 0);
    }
  }
  template <class Look>
  void visit_all(Look&& look) const noexcept {
    const std::uint32_t count = old_hash_ != nullptr ? old_hash_[1] : 0;
    for (std::uint32_t i = 0; i < count; ++i) look(table_[i]);
  }

  Address begin_;
  Address end_;
  Address bias_;
  const ElfW(Sym) * table_ = nullptr;
  const char* names_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint32_t* old_hash_ = nullptr;
};

// In the notes that the linker has put where the object's headers say; these are at its start.
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

[[nodiscard]] bool look_up(const char* path, struct stat* file) noexcept {
  return raw_syscall(SYS_newfstatat, AT_FDCWD, reinterpret_cast<long>(path),
                     reinterpret_cast<long>(file), 0) == 0;
}
[[nodiscard]] bool is_program(const char* path) noexcept {
  struct stat own{};
  struct stat other{};
  return look_up("/proc/self/exe", &own) && look_up(path, &other) && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

// The path by which the program was executed. The name that it is called by may be anything; but of
// a script it is the interpreter's path, where the other one is the script's.
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
  Symbols{object}.find(at, place);
  find_build_id(object, place);
  return true;
}

#else

bool find_loaded_place(Address at, LoadedPlace* place) noexcept { return ask_dladdr(at, place); }

#endif

}  // namespace allod
