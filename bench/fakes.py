"""Allocators for the tests of the security suite: one checks nothing, and one checks all."""

# Hands out what was freed last, of the size that stands before the block, and believes everything.
# With FAULT_AT=n the n-th call faults, with HANG_AT=n it never returns, and so on.
CARELESS = r"""
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kClasses = 64, kHeader = 16 };
struct block { struct block* next; };
static struct block* lists[kClasses];
static char* memory;
static size_t used;
static long calls;

static long wanted(const char* name) {
  const char* text = getenv(name);
  return text != NULL ? atol(text) : -1;
}
static void count(void) {
  ++calls;
  if (calls == wanted("FAULT_AT")) { *(volatile int*)16 = 1; }
  if (calls == wanted("ABORT_AT")) { abort(); }
  if (calls == wanted("HANG_AT")) { for (;;) { pause(); } }
  if (calls == wanted("SAY_AT")) { (void)!write(2, "something is wrong", 18); }
  if (calls == wanted("SHOUT_AT")) { for (;;) { (void)!write(2, "something is wrong\n", 19); } }
}
__attribute__((constructor)) static void begin(void) {
  if (wanted("ABORT_AT_START") > 0) { abort(); }
}
__attribute__((destructor)) static void end(void) {
  if (wanted("ABORT_AT_EXIT") > 0) { abort(); }
}
static unsigned class_of(size_t size) { return size < 2 ? 0 : 64 - __builtin_clzl(size - 1); }

void* malloc(size_t size) {
  count();
  const unsigned c = class_of(size);
  if (c > 32) { errno = ENOMEM; return NULL; }
  if (lists[c] != NULL) {
    struct block* block = lists[c];
    lists[c] = block->next;
    return block;
  }
  const size_t all = (size_t)1 << 36;
  if (memory == NULL) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory = mmap(NULL, all, PROT_READ | PROT_WRITE, how, -1, 0);
  }
  size_t* header = (size_t*)(memory + used);
  used += kHeader + (c < 4 ? 16 : (size_t)1 << c);
  header[0] = size;
  return header + 2;
}
void free(void* address) {
  count();
  if (address == NULL) { return; }
  struct block* block = address;
  const unsigned c = class_of(((size_t*)address)[-2]);
  block->next = lists[c];
  lists[c] = block;
}
size_t malloc_usable_size(void* block) {
  const unsigned c = class_of(((size_t*)block)[-2]);
  return c < 4 ? 16 : (size_t)1 << c;
}
void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) { errno = ENOMEM; return NULL; }
  void* block = malloc(bytes);
  return block != NULL ? memset(block, 0, bytes) : NULL;
}
void* realloc(void* old, size_t size) {
  void* block = malloc(size);
  if (block != NULL && old != NULL) {
    const size_t before = ((size_t*)old)[-2];
    memcpy(block, old, before < size ? before : size);
    free(old);
  }
  return block;
}
"""

# Each block ends where a page that cannot be touched begins, and no address is used twice. Beyond
# some 20,000 blocks the system has no more pages of different kinds.
CAREFUL = r"""
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kPage = 4096 };
static const size_t kAll = (size_t)1 << 36;
static char* memory;
static size_t used;
static struct { void* block; size_t size; } entries[1 << 16];
static size_t count;

static void stop(const char* why) {
  (void)!write(2, why, strlen(why));
  abort();
}
void* malloc(size_t size) {
  const size_t rounded = (size + 15) & ~(size_t)15;
  const size_t pages = (rounded + kPage - 1) / kPage * kPage;
  if (memory == NULL) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory = mmap(NULL, kAll, PROT_NONE, how, -1, 0);
    used = kPage;
  }
  if (size > kAll / 4 || used + pages + kPage > kAll) { errno = ENOMEM; return NULL; }
  char* begin = memory + used;
  if (pages != 0 && mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) { return NULL; }
  used += pages + kPage;
  char* block = begin + pages - rounded;
  // What lies before the block on its page is looked at when the block is freed.
  memset(begin, 0xc7, block - begin);
  entries[count].block = block;
  entries[count++].size = size;
  return block;
}
static size_t find(void* block) {
  for (size_t i = count; i-- > 0;) {
    if (entries[i].block == block) { return i; }
  }
  stop("not a block\n");
  return 0;
}
void free(void* block) {
  if (block == NULL) { return; }
  const size_t i = find(block);
  if (entries[i].size == SIZE_MAX) { stop("freed twice\n"); }
  char* begin = (char*)((uintptr_t)block & ~(uintptr_t)(kPage - 1));
  for (char* at = begin; entries[i].size != 0 && at < (char*)block; ++at) {
    if (*at != (char)0xc7) { stop("written before the block\n"); }
  }
  if (entries[i].size != 0) { mprotect(begin, entries[i].size, PROT_NONE); }
  entries[i].size = SIZE_MAX;
}
size_t malloc_usable_size(void* block) { return (entries[find(block)].size + 15) & ~(size_t)15; }
void* calloc(size_t number, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(number, size, &bytes)) { errno = ENOMEM; return NULL; }
  return malloc(bytes);
}
void* realloc(void* old, size_t size) {
  size_t before = 0;
  if (old != NULL) {
    before = entries[find(old)].size;
    if (before == SIZE_MAX) { stop("realloc of a freed block\n"); }
  }
  void* block = malloc(size);
  if (block == NULL || old == NULL) { return block; }
  memcpy(block, old, before < size ? before : size);
  free(old);
  return block;
}
"""
