// _dl_find_object for libraries that load on any glibc since 2.17, hidden from the program. glibc
// has it since 2.35; with an older one, the loader's list is read under its lock.
#include "libc/older/find_object.hpp"

#include <dlfcn.h>
#include <link.h>

#include "allod/base/cpu.hpp"
#include "libc/completion.hpp"

#if defined(DLFO_STRUCT_HAS_EH_DBASE)

// Weak, so that its library, the loader, is not linked with: what of it is optional would be
// needed.
#pragma weak _r_debug

namespace {

decltype(::_dl_find_object)* finder = nullptr;

struct Search {
  allod::Address at;
  dl_find_object* found;
};

// The loader's description of an object, which has the same text as its name.
link_map* map_of(const dl_phdr_info& object) noexcept {
  link_map* map = _r_debug.r_map;
  while (map != nullptr && (map->l_addr != object.dlpi_addr || map->l_name != object.dlpi_name)) {
    map = map->l_next;
  }
  return map;
}

int look_into(dl_phdr_info* object, size_t, void* argument) noexcept {
  const auto& search = *static_cast<const Search*>(argument);
  allod::Address begin = ~allod::Address{0};
  allod::Address end = 0;
  allod::Address table = 0;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    const allod::Address from = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) table = from;
    if (part.p_type != PT_LOAD) continue;
    if (from < begin) begin = from;
    if (from + part.p_memsz > end) end = from + part.p_memsz;
  }
  if (search.at < begin || search.at >= end) return 0;
  link_map* const map = map_of(*object);
  if (map == nullptr) return -1;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_link_map = map;
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(table);
  return 1;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" ALLOD_HOT int _dl_find_object(void* at, dl_find_object* found) noexcept {
  if (finder != nullptr) return finder(at, found);
  Search search{.at = allod::address_of(at), .found = found};
  return dl_iterate_phdr(&look_into, &search) == 1 ? 0 : -1;
}

ALLOD_HOT bool allod_finds_objects_without_lock() noexcept { return finder != nullptr; }

ALLOD_HOT void allod::older::find_finder() noexcept {
  finder = reinterpret_cast<decltype(finder)>(symbol_of_libc("_dl_find_object"));
}

#else

bool allod_finds_objects_without_lock() noexcept { return false; }

void allod::older::find_finder() noexcept {}

#endif
