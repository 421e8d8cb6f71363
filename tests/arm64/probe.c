// Says what the system that this program runs on can do, one word and one number a line.
#define _GNU_SOURCE
#include <iconv.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { kBytes = 1 << 20 };

static unsigned char* map(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static int dontneed_gives_zeros(void) {
  unsigned char* memory = map(kBytes);
  *memory = 1;
  return madvise(memory, kBytes, MADV_DONTNEED) == 0 && *memory == 0;
}

static int address_space_is_limited(void) {
  const struct rlimit limit = {256 * kBytes, 256 * kBytes};
  return setrlimit(RLIMIT_AS, &limit) == 0 && map((size_t)1024 * kBytes) == NULL;
}

int main(void) {
  printf("page_size %ld\n", sysconf(_SC_PAGESIZE));
  printf("memory_tags %d\n", (int)(getauxval(AT_HWCAP2) >> 18 & 1));
  printf("character_sets %d\n", iconv_open("UTF-16LE", "UTF-8") != (iconv_t)-1);
  printf("dontneed_gives_zeros %d\n", dontneed_gives_zeros());
  printf("address_space_limit %d\n", address_space_is_limited());
  return 0;
}
