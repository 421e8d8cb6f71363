// Stands in front of functions of the C library, to be preloaded before the allocator: at each call
// it allocates, resizes and frees, and then goes on with the C library's function. Blocks that are
// null, or do not hold what was written, end the process with status 97 or 98.
//
// They are those that an allocator may call, or did once. tools/checks/imports.toml is the list of
// what it does call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)

enum { kKept = 32 };
// A byte at both ends of each block.
static __thread struct {
  volatile unsigned char* block;
  size_t size;
  unsigned char byte;
} kept[kKept];
static __thread int inside;
static __thread unsigned calls;

__attribute__((noreturn)) static void fail(int status, const char* words, size_t length) {
  syscall(SYS_write, 2, words, length);
  for (;;) syscall(SYS_exit_group, status);
}
#define FAIL(status, words) fail(status, words "\n", sizeof words)

static size_t next_size(unsigned call) {
  if (call % 256 == 0) return 5000000;
  if (call % 32 == 0) return 100000 + call % 7 * 50000;
  return 1 + call * 7919u % 3000;
}
static void allocate(void) {
  const unsigned call = ++calls;
  const unsigned place = call % kKept;
  volatile unsigned char* block = kept[place].block;
  if (block != NULL) {
    if (block[0] != kept[place].byte || block[kept[place].size - 1] != kept[place].byte) {
      FAIL(98, "a block does not hold what was written");
    }
  }
  const size_t size = next_size(call);
  if (call % 3 == 0) {
    block = realloc((void*)block, size);
  } else {
    free((void*)block);
    block = call % 5 == 0 ? calloc(1, size) : malloc(size);
  }
  if (block == NULL) FAIL(97, "no memory in a function that stands before the C library's");
  kept[place].block = block;
  kept[place].size = size;
  kept[place].byte = (unsigned char)call;
  block[0] = block[size - 1] = (unsigned char)call;
}

// The function that `name` stands before.
__attribute__((used)) static void* stand_before(void** next, const char* name) {
  if (!inside) {
    inside = 1;
    allocate();
    inside = 0;
  }
  if (*next != NULL) return *next;
  // dlsym may be one of them.
  static void* (*find)(void*, const char*);
  if (find == NULL) find = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (find == NULL) find = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  *next = find(RTLD_NEXT, name);
  return *next;
}

// With all registers that may hold arguments as they are.
#define STAND_BEFORE(name)                                   \
  __asm__(                                                   \
      ".text\n"                                              \
      ".globl " #name "\n.type " #name ", @function\n" #name \
      ":\n"                                                  \
      "push %rbp\nmov %rsp, %rbp\n"                          \
      "and $-16, %rsp\nsub $192, %rsp\n"                     \
      "mov %rax, (%rsp)\nmov %rdi, 8(%rsp)\n"                \
      "mov %rsi, 16(%rsp)\nmov %rdx, 24(%rsp)\n"             \
      "mov %rcx, 32(%rsp)\nmov %r8, 40(%rsp)\n"              \
      "mov %r9, 48(%rsp)\nmov %r10, 56(%rsp)\n"              \
      "movups %xmm0, 64(%rsp)\nmovups %xmm1, 80(%rsp)\n"     \
      "movups %xmm2, 96(%rsp)\nmovups %xmm3, 112(%rsp)\n"    \
      "movups %xmm4, 128(%rsp)\nmovups %xmm5, 144(%rsp)\n"   \
      "movups %xmm6, 160(%rsp)\nmovups %xmm7, 176(%rsp)\n"   \
      "lea 1f(%rip), %rdi\nlea 2f(%rip), %rsi\n"             \
      "call stand_before\nmov %rax, %r11\n"                  \
      "mov (%rsp), %rax\nmov 8(%rsp), %rdi\n"                \
      "mov 16(%rsp), %rsi\nmov 24(%rsp), %rdx\n"             \
      "mov 32(%rsp), %rcx\nmov 40(%rsp), %r8\n"              \
      "mov 48(%rsp), %r9\nmov 56(%rsp), %r10\n"              \
      "movups 64(%rsp), %xmm0\nmovups 80(%rsp), %xmm1\n"     \
      "movups 96(%rsp), %xmm2\nmovups 112(%rsp), %xmm3\n"    \
      "movups 128(%rsp), %xmm4\nmovups 144(%rsp), %xmm5\n"   \
      "movups 160(%rsp), %xmm6\nmovups 176(%rsp), %xmm7\n"   \
      "mov %rbp, %rsp\npop %rbp\njmp *%r11\n"                \
      ".size " #name ", . - " #name                          \
      "\n"                                                   \
      ".bss\n.balign 8\n1: .zero 8\n"                        \
      ".section .rodata\n2: .string \"" #name                \
      "\"\n"                                                 \
      ".text\n")

// What is called.
STAND_BEFORE(__errno_location);
STAND_BEFORE(__register_atfork);
STAND_BEFORE(abort);
STAND_BEFORE(bzero);
STAND_BEFORE(dladdr);
STAND_BEFORE(dlopen);
STAND_BEFORE(dlsym);
STAND_BEFORE(fwrite);
STAND_BEFORE(getauxval);
STAND_BEFORE(gnu_get_libc_version);
STAND_BEFORE(mempcpy);
STAND_BEFORE(pthread_key_create);
STAND_BEFORE(pthread_mutex_lock);
STAND_BEFORE(pthread_mutex_unlock);
STAND_BEFORE(pthread_setspecific);
STAND_BEFORE(sigaction);
STAND_BEFORE(sigfillset);

// What was, or may be.
STAND_BEFORE(__libc_current_sigrtmax);
STAND_BEFORE(__libc_current_sigrtmin);
STAND_BEFORE(clock_gettime);
STAND_BEFORE(close);
STAND_BEFORE(dl_iterate_phdr);
STAND_BEFORE(getenv);
STAND_BEFORE(getpagesize);
STAND_BEFORE(getpid);
STAND_BEFORE(gettimeofday);
STAND_BEFORE(madvise);
STAND_BEFORE(memchr);
STAND_BEFORE(memcmp);
STAND_BEFORE(memcpy);
STAND_BEFORE(memmove);
STAND_BEFORE(memset);
STAND_BEFORE(mmap);
STAND_BEFORE(mprotect);
STAND_BEFORE(munmap);
STAND_BEFORE(nanosleep);
STAND_BEFORE(open);
STAND_BEFORE(pthread_getspecific);
STAND_BEFORE(pthread_self);
STAND_BEFORE(pthread_sigmask);
STAND_BEFORE(read);
STAND_BEFORE(sched_getcpu);
STAND_BEFORE(sched_yield);
STAND_BEFORE(secure_getenv);
STAND_BEFORE(strchr);
STAND_BEFORE(strcmp);
STAND_BEFORE(strlen);
STAND_BEFORE(strncmp);
STAND_BEFORE(strnlen);
STAND_BEFORE(strstr);
STAND_BEFORE(sysconf);
STAND_BEFORE(write);

#endif
