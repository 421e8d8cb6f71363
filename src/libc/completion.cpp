#include "libc/completion.hpp"

#include <link.h>

#include "allod/base/cpu.hpp"
#include "allod/os/linux/symbol_table.hpp"

#ifdef __GLIBC__
#include <gnu/libc-version.h>

namespace allod {

namespace {

struct Search {
  const char* name;
  bool is_wide;  // in all objects
  Address found;
};

// Hot, as what every program runs: code that few run lies apart.
ALLOD_HOT int look_into(dl_phdr_info* object, std::size_t, void* argument) noexcept {
  auto& search = *static_cast<Search*>(argument);
  const Address bias = object->dlpi_addr;
  const Address inside = reinterpret_cast<Address>(&gnu_get_libc_version);
  bool is_libc = false;
  const ElfW(Dyn)* contents = nullptr;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    const Address begin = bias + part.p_vaddr;
    if (part.p_type == PT_LOAD) is_libc |= inside - begin < part.p_memsz;
    if (part.p_type == PT_DYNAMIC) contents = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  if (!is_libc && !search.is_wide) return 0;
  // The loader relocates these entries in place.
  const auto in_place = [&](Address at) noexcept { return at < bias ? at + bias : at; };
  const ElfW(Sym)* const symbol = os::SymbolTable{contents, in_place}.find(search.name);
  if (symbol != nullptr) search.found = bias + symbol->st_value;
  const bool is_over = symbol != nullptr || !search.is_wide;
  return is_over ? 1 : 0;
}

}  // namespace

ALLOD_HOT Address symbol_of_libc(const char* name) noexcept {
  Search search{.name = name, .is_wide = false, .found = 0};
  dl_iterate_phdr(&look_into, &search);
  if (search.found != 0) return search.found;
  // An older C library, or a library that stands in front of it.
  search.is_wide = true;
  dl_iterate_phdr(&look_into, &search);
  return search.found;
}

}  // namespace allod

#else

namespace allod {

Address symbol_of_libc(const char*) noexcept { return 0; }

}  // namespace allod

#endif
