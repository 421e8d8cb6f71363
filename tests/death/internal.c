// What the library says when its own data do not hold together any more: this program changes them.
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "functions.h"

// Kept in this form, the address is found only where the library keeps it.
static const uintptr_t kDisguise = 0x5a5a5a5a5a5a5a5a;

// Guards of the library look like any other memory in the list of mappings.
static bool is_readable(uintptr_t* at) {
  uintptr_t word;
  const struct iovec here = {&word, sizeof word};
  const struct iovec there = {at, sizeof word};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof word;
}

static size_t replace_words(uintptr_t* word, const uintptr_t* end, uintptr_t disguised,
                            uintptr_t difference) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t count = 0;
  bool readable = true;
  for (; word < end; ++word) {
    if ((uintptr_t)word % page == 0) readable = is_readable(word);
    if (readable && (*word ^ kDisguise) == disguised) {
      *word += difference;
      ++count;
    }
  }
  return count;
}

// Adds `difference` to the word, wherever it is in anonymous memory that has no name, or the name
// of the library's metadata.
static size_t change_metadata(uintptr_t disguised, uintptr_t difference) {
  static char maps[256 * KIB];
  const int file = open("/proc/self/maps", O_RDONLY);
  CHECK(file >= 0, "open /proc/self/maps");
  size_t length = 0;
  ssize_t got = 0;
  while ((got = read(file, maps + length, sizeof maps - 1 - length)) > 0) {
    length += (size_t)got;
  }
  close(file);
  size_t count = 0;
  for (char* line = strtok(maps, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    size_t start = 0;
    size_t end = 0;
    char access[5] = "";
    unsigned long inode = 0;
    char name[64] = "";
    sscanf(line, "%zx-%zx %4s %*s %*s %lu %63[^\n]", &start, &end, access, &inode, name);
    if (strcmp(access, "rw-p") == 0 && inode == 0 &&
        (name[0] == '\0' || strstr(name, "allod: metadata") != NULL)) {
      count += replace_words((uintptr_t*)start, (uintptr_t*)end, disguised, difference);
    }
  }
  return count;
}

CASE(a_magazine_is_overwritten) {
  enum { kBlocks = 10 };
  uintptr_t disguised[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    disguised[i] = (uintptr_t)obtain(100) ^ kDisguise;
  }
  void (*check)(void) = (void (*)(void))find_function("allod_check");
  check();
  // Not the first block of a slab: that one's address is in more places.
  free((void*)(disguised[5] ^ kDisguise));
  check();
  CHECK(change_metadata(disguised[5], 8) > 0, "the address of a free block is kept nowhere");
  tell("changed", 1);
  check();
  tell("unseen", 1);
}
