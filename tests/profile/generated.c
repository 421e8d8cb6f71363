// Makes code at run time that calls malloc. After a line on standard input, it writes the names of
// this code for perf, as its argument says: map, dump or none. Ends after another line. x86-64
// only.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 4 << 20, PAGE = 4096 };

typedef void (*Called)(void);
typedef void (*Stub)(Called called);

// Each calls its argument and returns: with a frame pointer; the same with an instruction between;
// and without one, as CPython's trampolines do.
static const unsigned char stubs[3][16] = {
    {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3},
    {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x90, 0x5d, 0xc3},
    {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3},
};
static const char* const names[3] = {
    "LazyCompile:*fill /app/cache.js:12:3",
    "void Cache.put(int, int)",
    "py::Cache.make:/app/cache.py",
};

void* volatile kept[3];
int count;

__attribute__((noinline)) void allocate(void) { kept[count++] = malloc(BLOCK); }

static void write_map(const unsigned char* code) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  FILE* file = fopen(path, "w");
  if (file == NULL) exit(2);
  for (int i = 0; i < 3; ++i) {
    fprintf(file, "%lx %lx %s\n", (unsigned long)(code + 16 * i), (unsigned long)sizeof *stubs,
            names[i]);
  }
  fclose(file);
}

struct Record {
  uint32_t kind;
  uint32_t bytes;
  uint64_t time;
};

static void write_lines(FILE* file, const unsigned char* code) {
  struct {
    struct Record head;
    uint64_t code, count;
  } lines = {{2, 0, 0}, (uint64_t)code, 3};
  const char* const files[3] = {"/app/first.js", "\xff", "/app/last.js"};
  lines.head.bytes = sizeof lines;
  for (int i = 0; i < 3; ++i) lines.head.bytes += 16 + (uint32_t)strlen(files[i]) + 1;
  fwrite(&lines, sizeof lines, 1, file);
  for (int i = 0; i < 3; ++i) {
    // The call is at the fourth byte, and returns to the sixth.
    const uint64_t at = (uint64_t)code + (i == 0 ? 0U : i == 1 ? 4U : 8U);
    const uint32_t place[2] = {70 + (uint32_t)i, 0};
    fwrite(&at, sizeof at, 1, file);
    fwrite(place, sizeof place, 1, file);
    fwrite(files[i], strlen(files[i]) + 1, 1, file);
  }
}

static void write_dump(const unsigned char* code) {
  char path[64];
  snprintf(path, sizeof path, "jit-%d.dump", getpid());
  FILE* file = fopen(path, "w+");
  if (file == NULL) exit(2);
  const uint32_t head[10] = {0x4a695444, 1, sizeof head, 62, 0, (uint32_t)getpid(), 0, 0, 0, 0};
  fwrite(head, sizeof head, 1, file);
  // All but the first begin elsewhere, and are moved.
  for (int i = 0; i < 3; ++i) {
    const uint64_t place = (uint64_t)(code + 16 * i) + (i == 0 ? 0 : 0x10000);
    if (i == 0) write_lines(file, code);
    const struct Record load = {0, (uint32_t)(sizeof load + 40 + strlen(names[i]) + 1 + 16), 0};
    const uint64_t fields[5] = {(uint32_t)getpid(), place, place, 16, (uint64_t)i};
    fwrite(&load, sizeof load, 1, file);
    fwrite(fields, sizeof fields, 1, file);
    fwrite(names[i], strlen(names[i]) + 1, 1, file);
    fwrite(stubs[i], 16, 1, file);
    if (i == 0) continue;
    const struct Record move = {1, (uint32_t)(sizeof move + 48), 0};
    const uint64_t moved[6] = {fields[0], 0, place, place - 0x10000, 16, (uint64_t)i};
    fwrite(&move, sizeof move, 1, file);
    fwrite(moved, sizeof moved, 1, file);
  }
  fflush(file);
  // This tells perf of the file.
  if (mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED) exit(2);
}

__attribute__((noinline)) void run_generated(const unsigned char* code) {
  for (int i = 0; i < 3; ++i) ((Stub)(uintptr_t)(code + 16 * i))(&allocate);
}

int main(int words, char** word) {
  unsigned char* const code =
      mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED || words != 2) return 2;
  memcpy(code, stubs, sizeof stubs);
  run_generated(code);
  char line[16];
  // Names come after the samples, as those of a JVM that writes them at its end.
  const char* const asked = fgets(line, sizeof line, stdin);
  if (strcmp(word[1], "map") == 0) write_map(code);
  if (strcmp(word[1], "dump") == 0) write_dump(code);
  printf("done\n");
  fflush(stdout);
  return asked == NULL || fgets(line, sizeof line, stdin) == NULL ? 1 : 0;
}
