// The code of a vfork that calls allod_before_vfork() first, and ends in allod_vfork_failed(error)
// if the system refuses. On processors with restartable sequences.
//
// vfork returns twice, and the child may overwrite the return address on the shared stack, so it is
// kept in a register.
#pragma once

#if defined(__x86_64__)

// The child also shares the shadow stack, which stays unchanged, as in libc's function.
#define ALLOD_VFORK_CODE                                                               \
  ".pushsection .text\n"                                                               \
  ".globl vfork\n"                                                                     \
  ".type vfork, @function\n"                                                           \
  "vfork:\n\t"                                                                         \
  ".cfi_startproc\n\t"                                                                 \
  "endbr64\n\t"                                                                        \
  "subq $8, %rsp\n\t"                                                                  \
  ".cfi_adjust_cfa_offset 8\n\t"                                                       \
  "call allod_before_vfork\n\t"                                                        \
  "addq $8, %rsp\n\t"                                                                  \
  ".cfi_adjust_cfa_offset -8\n\t"                                                      \
  "popq %rdi\n\t"                                                                      \
  ".cfi_adjust_cfa_offset -8\n\t"                                                      \
  ".cfi_register %rip, %rdi\n\t"                                                       \
  "movl $58, %eax\n\t" /* SYS_vfork */                                                 \
  "syscall\n\t"                                                                        \
  "pushq %rdi\n\t"                                                                     \
  ".cfi_adjust_cfa_offset 8\n\t"                                                       \
  ".cfi_rel_offset %rip, 0\n\t"                                                        \
  "cmpq $-4096, %rax\n\t"                                                              \
  "ja 2f\n\t"                                                                          \
  "testl %eax, %eax\n\t"                                                               \
  "jnz 1f\n\t"                                                                         \
  "xorl %esi, %esi\n\t"                                                                \
  ".byte 0xf3, 0x48, 0x0f, 0x1e, 0xce\n\t" /* rdsspq %rsi; 0 without a shadow stack */ \
  "testq %rsi, %rsi\n\t"                                                               \
  "jz 1f\n\t"                                                                          \
  "popq %rdi\n\t"                                                                      \
  ".cfi_adjust_cfa_offset -8\n\t"                                                      \
  ".cfi_register %rip, %rdi\n\t"                                                       \
  "jmp *%rdi\n\t"                                                                      \
  ".cfi_adjust_cfa_offset 8\n\t"                                                       \
  ".cfi_rel_offset %rip, 0\n"                                                          \
  "1:\n\t"                                                                             \
  "ret\n"                                                                              \
  "2:\n\t"                                                                             \
  "negl %eax\n\t"                                                                      \
  "movl %eax, %edi\n\t"                                                                \
  "jmp allod_vfork_failed\n\t"                                                         \
  ".cfi_endproc\n\t"                                                                   \
  ".size vfork, . - vfork\n"                                                           \
  ".popsection"

#elif defined(__aarch64__)

#define ALLOD_VFORK_CODE                                       \
  ".pushsection .text\n"                                       \
  ".balign 4\n"                                                \
  ".globl vfork\n"                                             \
  ".type vfork, %function\n"                                   \
  "vfork:\n\t"                                                 \
  ".cfi_startproc\n\t"                                         \
  "hint #34\n\t" /* bti c */                                   \
  "stp x29, x30, [sp, #-16]!\n\t"                              \
  ".cfi_def_cfa_offset 16\n\t"                                 \
  ".cfi_offset x29, -16\n\t"                                   \
  ".cfi_offset x30, -8\n\t"                                    \
  "mov x29, sp\n\t"                                            \
  "bl allod_before_vfork\n\t"                                  \
  "ldp x29, x30, [sp], #16\n\t"                                \
  ".cfi_def_cfa_offset 0\n\t"                                  \
  ".cfi_restore x29\n\t"                                       \
  ".cfi_restore x30\n\t"                                       \
  "mov x0, #0x4111\n\t" /* CLONE_VM | CLONE_VFORK | SIGCHLD */ \
  "mov x1, sp\n\t"                                             \
  "mov x8, #220\n\t" /* SYS_clone */                           \
  "svc #0\n\t"                                                 \
  "cmn x0, #4095\n\t"                                          \
  "b.hs 1f\n\t"                                                \
  "ret\n"                                                      \
  "1:\n\t"                                                     \
  "neg w0, w0\n\t"                                             \
  "b allod_vfork_failed\n\t"                                   \
  ".cfi_endproc\n\t"                                           \
  ".size vfork, . - vfork\n"                                   \
  ".popsection"

#endif
