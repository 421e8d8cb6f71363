// Static probes for tracers (bpftrace, perf, gdb, SystemTap), in the format of SystemTap's
// sys/sdt.h, version 3. A probe is a nop, and a note in the file with its address and the places of
// its arguments.
#pragma once

#include <cstdint>

#include "allod/base/processor/features.hpp"

// A macro, since assembler text cannot be a parameter. NAME is a string literal; the arguments are
// four numbers.
#define ALLOD_PROBE(NAME, A, B, C, D)                                             \
  asm volatile(                                                                   \
      "990: nop\n\t"                                                              \
      ".pushsection .note.stapsdt, \"\", %%note\n\t"                              \
      ".balign 4\n\t"                                                             \
      ".4byte 992f - 991f, 994f - 993f, 3\n"                                      \
      "991: .asciz \"stapsdt\"\n"                                                 \
      "992: .balign 4\n"                                                          \
      "993: " ALLOD_ASM_ADDRESS                                                   \
      " 990b, _.stapsdt.base, 0\n\t"                                              \
      ".asciz \"allod\"\n\t"                                                      \
      ".asciz \"" NAME                                                            \
      "\"\n\t"                                                                    \
      ".asciz \"" ALLOD_ASM_BYTES "@%0 " ALLOD_ASM_BYTES "@%1 " ALLOD_ASM_BYTES   \
      "@%2 " ALLOD_ASM_BYTES                                                      \
      "@%3\"\n"                                                                   \
      "994: .balign 4\n\t"                                                        \
      ".popsection\n\t"                                                           \
      ".ifndef _.stapsdt.base\n\t"                                                \
      ".pushsection .stapsdt.base, \"aG\", %%progbits, .stapsdt.base, comdat\n\t" \
      ".weak _.stapsdt.base\n\t"                                                  \
      ".hidden _.stapsdt.base\n"                                                  \
      "_.stapsdt.base: .space 1\n\t"                                              \
      ".size _.stapsdt.base, 1\n\t"                                               \
      ".popsection\n\t"                                                           \
      ".endif"                                                                    \
      :                                                                           \
      : "r"(static_cast<std::uintptr_t>(A)), "r"(static_cast<std::uintptr_t>(B)), \
        "r"(static_cast<std::uintptr_t>(C)), "r"(static_cast<std::uintptr_t>(D)))
