// vfork in front of libc's. Its child runs in the memory of the parent, and on the parent's
// thread-local variables, but the kernel does not watch over sequences of it: who allocates there
// has to know. See ProcessHeap::expect_guest.
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

// It returns twice, and the child may write to where the address to return to lies: that waits in a
// register. The child's shadow stack is the parent's as well, and stays as it is, as with libc's
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
    ".byte 0xf3, 0x48, 0x0f, 0x1e, 0xce\n\t"  // rdsspq %rsi; leaves 0 where there is none
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
