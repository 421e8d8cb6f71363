// Copies that stay in their blocks, and copies that leave them.
#include <allod.h>
#include <stdlib.h>
#include <string.h>

#include "functions.h"

void* __memcpy_chk(void*, const void*, size_t, size_t);
void* __memmove_chk(void*, const void*, size_t, size_t);
void* __mempcpy_chk(void*, const void*, size_t, size_t);
void* __memset_chk(void*, int, size_t, size_t);
char* __strcpy_chk(char*, const char*, size_t);
char* __stpcpy_chk(char*, const char*, size_t);
char* __strncpy_chk(char*, const char*, size_t, size_t);
char* __strcat_chk(char*, const char*, size_t);
char* __strncat_chk(char*, const char*, size_t, size_t);

enum { NO_LIMIT = 1 << 30 };

// Each copies `count` bytes, the zero of a text among them, from a text of at least as many, and
// returns how many there are before the address that it returned.
#define KIND(name, call)                                              \
  static size_t by_##name(char* to, const char* from, size_t count) { \
    (void)from, (void)count;                                          \
    return (size_t)((char*)(call) - to);                              \
  }
KIND(memcpy, memcpy(to, from, count))
KIND(memmove, memmove(to, from, count))
KIND(mempcpy, mempcpy(to, from, count))
KIND(memset, memset(to, 'x', count))
KIND(strcpy, strcpy(to, from))
KIND(stpcpy, stpcpy(to, from))
KIND(strncpy, strncpy(to, from, count))
KIND(strcat, (to[0] = '\0', strcat(to, from)))
KIND(strncat, (to[0] = '\0', strncat(to, from, count - 1)))
KIND(memcpy_chk, __memcpy_chk(to, from, count, NO_LIMIT))
KIND(memmove_chk, __memmove_chk(to, from, count, NO_LIMIT))
KIND(mempcpy_chk, __mempcpy_chk(to, from, count, NO_LIMIT))
KIND(memset_chk, __memset_chk(to, 'x', count, NO_LIMIT))
KIND(strcpy_chk, __strcpy_chk(to, from, NO_LIMIT))
KIND(stpcpy_chk, __stpcpy_chk(to, from, NO_LIMIT))
KIND(strncpy_chk, __strncpy_chk(to, from, count, NO_LIMIT))
KIND(strcat_chk, (to[0] = '\0', __strcat_chk(to, from, NO_LIMIT)))
KIND(strncat_chk, (to[0] = '\0', __strncat_chk(to, from, count - 1, NO_LIMIT)))

typedef size_t (*copy_function)(char*, const char*, size_t);
static const struct {
  copy_function copy;
  enum { TO_START, TO_END, TO_ZERO } returns;
} kinds[] = {
    {by_memcpy, TO_START},      {by_memmove, TO_START},     {by_mempcpy, TO_END},
    {by_memset, TO_START},      {by_strcpy, TO_START},      {by_stpcpy, TO_ZERO},
    {by_strncpy, TO_START},     {by_strcat, TO_START},      {by_strncat, TO_START},
    {by_memcpy_chk, TO_START},  {by_memmove_chk, TO_START}, {by_mempcpy_chk, TO_END},
    {by_memset_chk, TO_START},  {by_strcpy_chk, TO_START},  {by_stpcpy_chk, TO_ZERO},
    {by_strncpy_chk, TO_START}, {by_strcat_chk, TO_START},  {by_strncat_chk, TO_START},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// A text of so many bytes, with its zero.
static void write_text(char* to, size_t bytes) {
  for (size_t i = 0; i + 1 < bytes; ++i) to[i] = 'x';
  to[bytes - 1] = '\0';
}

// Which of them, and the blocks: `TEST_FROM` bytes and `TEST_TO`.
static copy_function chosen(void) { return kinds[parameter("TEST_KIND")].copy; }

CASE(copies_that_fit_are_done) {
  static const size_t counts[] = {1, 2, 8, 24, 100, 5000, 100000, 6 * MIB};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
    const size_t count = counts[c];
    char* from = obtain(count);
    char* to = obtain(count);
    for (int kind = 0; kind < KINDS; ++kind) {
      write_text(from, count);
      for (size_t i = 0; i < count; ++i) to[i] = '?';
      const size_t returned = kinds[kind].copy(to, from, count);
      const size_t wanted = kinds[kind].returns == TO_START ? 0
                            : kinds[kind].returns == TO_END ? count
                                                            : count - 1;
      CHECK(returned == wanted, "kind %d of %zu bytes returns %zu", kind, count, returned);
      const bool sets = kinds[kind].copy == by_memset || kinds[kind].copy == by_memset_chk;
      CHECK(to[count - 1] == (sets ? 'x' : '\0'), "kind %d of %zu bytes: end", kind, count);
      CHECK(count < 2 || (to[0] == 'x' && to[count - 2] == 'x'), "kind %d of %zu", kind, count);
    }
    free(from);
    free(to);
  }
}

CASE(copies_elsewhere_are_done) {
  char from[200];
  char to[200];
  write_text(from, 150);
  for (int kind = 0; kind < KINDS; ++kind) {
    to[149] = '?';
    kinds[kind].copy(to, from, 150);
    CHECK(to[149] != '?' && to[148] == 'x', "kind %d", kind);
  }
  strcpy(to, "abc");
  strncpy(to + 10, "de", 5);
  CHECK(to[12] == '\0' && to[14] == '\0' && to[15] == 'x', "strncpy fills with zeros");
  strcat(strncat(to, "defgh", 2), "z");
  CHECK(strcmp(to, "abcdez") == 0, "%s", to);
  memmove(to + 1, to, 5);
  CHECK(strcmp(to, "aabcde") == 0, "%s", to);
  memmove(to, to + 2, 5);
  CHECK(strcmp(to, "bcde") == 0, "%s", to);
  CHECK(memcpy(hidden(NULL), hidden(NULL), hidden_size(0)) == NULL, "nothing, to nowhere");
}

// `TEST_COUNT` bytes, from a block of `TEST_FROM` to one of `TEST_TO`; the test is told of the one
// that is too small.
CASE(copy) {
  const size_t from_bytes = parameter("TEST_FROM");
  const size_t to_bytes = parameter("TEST_TO");
  const size_t count = parameter("TEST_COUNT");
  char* from = allocating_function(from_bytes);
  char* to = allocating_function(to_bytes);
  char* behind = allocating_function(to_bytes);
  memset(from, 'x', from_bytes);
  if (count <= from_bytes) from[count - 1] = '\0';
  memset(behind, '!', to_bytes);
  tell_block(to_bytes < from_bytes ? to : from);
  chosen()(to, from, count);
  CHECK(behind[0] == '!' && behind[to_bytes - 1] == '!', "another block was written to");
  freeing_function(behind);
  freeing_function(to);
  freeing_function(from);
  survive();
}

// The first address in a slab that lies in no block.
CASE(copy_to_where_no_block_is) {
  enum { kMany = 100000 };
  char* from = allocating_function(kMany);
  char* to = allocating_function(1000);
  to -= (uintptr_t)to % (64 * KIB);
  // Until then, the default library has some at hand, which count as in use.
  allod_collect(0);
  while (allod_bounds(to, NULL, NULL)) to += 16;
  chosen()(tell_address(to), from, kMany);
}

// Every block is full of text that does not end, and nothing is to be put behind it.
CASE(append_to_a_text_without_end) {
  enum { kBlocks = 200, kBytes = 64 };
  static char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) memset(blocks[i] = allocating_function(kBytes), 'x', kBytes);
  char* to = tell_block(blocks[kBlocks / 2]);
  switch (parameter("TEST_KIND")) {
    case 0:
      strcat(to, "abc");
      break;
    case 1:
      strncat(to, "abcd", 3);
      break;
    case 2:
      __strcat_chk(to, "abc", NO_LIMIT);
      break;
    default:
      __strncat_chk(to, "abcd", 3, NO_LIMIT);
  }
  for (int i = 0; i < kBlocks; ++i) {
    for (int j = 0; j < kBytes; ++j) CHECK(blocks[i][j] == 'x', "block %d, byte %d", i, j);
  }
  survive();
}

CASE(copy_to_a_freed_block) {
  char from[24];
  write_text(from, sizeof from);
  char* to = tell_block(allocating_function(24));
  freeing_function(to);
  chosen()(to, from, sizeof from);
  survive();
}

// Of a function with the name that the test wants.
CASE(a_copy_is_reported_by_name) {
  static const char* const names[] = {NULL, "operator\"\"_kb\n\\\x01\xff\xc3\xa9"};
  void* block = tell_block(allocating_function(10));
  allod_report_copy(block, 20, 1, names[parameter("TEST_KIND")]);
  freeing_function(block);
  survive();
}

// The library fills what lies behind its blocks, and clears what is free: that is no defect.
CASE(a_hardened_heap_goes_its_way) {
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.hardened = 1;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  for (int round = 0; round < 500; ++round) {
    char* block = allod_heap_malloc(heap, (size_t)(1 + round * 7));
    memset(block, 1, (size_t)(1 + round * 7));
    allod_heap_free(heap, allod_heap_realloc(heap, block, (size_t)(1 + round * 11)));
  }
  allod_heap_destroy(heap);
}
