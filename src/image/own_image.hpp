// Where this library, or the program that contains it, is mapped.
#pragma once

#include <link.h>

#include "allod/base/base.hpp"

// The linker's name for the ELF header.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" [[gnu::visibility("hidden")]] const ElfW(Ehdr) __ehdr_start;

namespace allod {

struct Image {
  Address begin = 0;
  Address code_end = 0;
  Address end = 0;  // of all segments, with .bss
};

// Read from the program headers: symbols like `etext` would be exported.
[[nodiscard]] inline Image own_image() noexcept {
  Image image{.begin = address_of(&__ehdr_start)};
  const Address headers = image.begin + __ehdr_start.e_phoff;
  Address moved_by = image.begin;
  for (unsigned i = 0; i < __ehdr_start.e_phnum; ++i) {
    const auto& part = reinterpret_cast<const ElfW(Phdr)*>(headers)[i];
    if (part.p_type != PT_LOAD) continue;
    if (image.end == 0) moved_by -= part.p_vaddr;
    const Address end = moved_by + part.p_vaddr + part.p_memsz;
    if (end > image.end) image.end = end;
    if ((part.p_flags & PF_X) != 0 && end > image.code_end) image.code_end = end;
  }
  return image;
}

}  // namespace allod
