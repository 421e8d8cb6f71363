// What Debian's libgcc_eh.a asks glibc for and musl does not have: where the unwind tables are of the
// object that holds an address. Linked into each library that is built for musl on Debian.
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

// As in glibc's <dlfcn.h>, for x86-64.
struct dl_find_object {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* link_map;
  void* eh_frame;
  unsigned long long reserved[7];
};

struct search {
  ElfW(Addr) place;
  struct dl_find_object* found;
};

static int look_into(struct dl_phdr_info* object, size_t size, void* argument) {
  (void)size;
  const struct search* search = argument;
  ElfW(Addr) begin = ~(ElfW(Addr))0, end = 0, table = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const ElfW(Addr) from = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) table = from;
    if (part->p_type != PT_LOAD) continue;
    if (from < begin) begin = from;
    if (from + part->p_memsz > end) end = from + part->p_memsz;
  }
  if (search->place < begin || search->place >= end || table == 0) return 0;
  search->found->flags = 0;
  search->found->map_start = (void*)begin;
  search->found->map_end = (void*)end;
  search->found->link_map = NULL;
  search->found->eh_frame = (void*)table;
  return 1;
}

__attribute__((visibility("hidden"))) int _dl_find_object(void* place,
                                                          struct dl_find_object* found) {
  struct search search = {(ElfW(Addr))place, found};
  return dl_iterate_phdr(&look_into, &search) == 1 ? 0 : -1;
}
