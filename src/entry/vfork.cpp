// Interposes vfork. Its child shares the parent's memory and thread-local variables, but the kernel
// does not restart restartable sequences in it, so allocation must know. See
// ProcessHeap::expect_guest.
#include "entry/surface.hpp"
#include "instance/process.hpp"

#if defined(__x86_64__) && defined(__linux__)

extern "C" {
[[gnu::visibility("hidden"), gnu::used]] void allod_before_vfork() noexcept {
  allod::Process::expect_guest();
}
[[gnu::visibility("hidden"), gnu::used]] int allod_vfork_failed(int error) noexcept {
  errno = error;
  return -1;
}
}

// vfork returns twice, and the child may overwrite the return address on the shared stack, so it is
// kept in a register. The child also shares the shadow stack, which stays unchanged, as in libc's
// function.
__asm__(
    ".pushsection .text\n"
    ".globl vfork\n"
    ".type vfork, @function\n"
    "vfork:\n\t"
    ".cfi_startproc\n\t"
    "endbr64\n\t"
    "subq $8, %rsp\n\t"
    ".cfi_adjust_cfa_offset 8\n\t"
    "call allod_before_vfork\n\t"
    "addq $8, %rsp\n\t"
    ".cfi_adjust_cfa_offset -8\n\t"
    "popq %rdi\n\t"
    ".cfi_adjust_cfa_offset -8\n\t"
    ".cfi_register %rip, %rdi\n\t"
    "movl $58, %eax\n\t"  // SYS_vfork
    "syscall\n\t"
    "pushq %rdi\n\t"
    ".cfi_adjust_cfa_offset 8\n\t"
    ".cfi_rel_offset %rip, 0\n\t"
    "cmpq $-4096, %rax\n\t"
    "ja 2f\n\t"
    "testl %eax, %eax\n\t"
    "jnz 1f\n\t"
    "xorl %esi, %esi\n\t"
    ".byte 0xf3, 0x48, 0x0f, 0x1e, 0xce\n\t"  // rdsspq %rsi; 0 without a shadow stack
    "testq %rsi, %rsi\n\t"
    "jz 1f\n\t"
    "popq %rdi\n\t"
    ".cfi_adjust_cfa_offset -8\n\t"
    ".cfi_register %rip, %rdi\n\t"
    "jmp *%rdi\n\t"
    ".cfi_adjust_cfa_offset 8\n\t"
    ".cfi_rel_offset %rip, 0\n"
    "1:\n\t"
    "ret\n"
    "2:\n\t"
    "negl %eax\n\t"
    "movl %eax, %edi\n\t"
    "jmp allod_vfork_failed\n\t"
    ".cfi_endproc\n\t"
    ".size vfork, . - vfork\n"
    ".popsection");

#endif
