#include "cases.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

const char* case_name = "";

static void write_all(int descriptor, const char* text, size_t length) {
  while (length > 0) {
    ssize_t written = write(descriptor, text, length);
    if (written <= 0) {
      return;
    }
    text += written;
    length -= (size_t)written;
  }
}

static void write_line(int descriptor, const char* prefix, const char* format, va_list arguments) {
  char line[2048];
  int length = snprintf(line, sizeof line - 1, "%s", prefix);
  int more = vsnprintf(line + length, sizeof line - 1 - (size_t)length, format, arguments);
  if (more > 0) {
    length += more;
  }
  if (length > (int)sizeof line - 2) {
    length = (int)sizeof line - 2;
  }
  line[length++] = '\n';
  write_all(descriptor, line, (size_t)length);
}

void check_failed(const char* file, int line, const char* condition, const char* format, ...) {
  char prefix[1024];
  snprintf(prefix, sizeof prefix, "%s:%d: (%s) does not hold: ", file, line, condition);
  va_list arguments;
  va_start(arguments, format);
  write_line(STDERR_FILENO, prefix, format, arguments);
  va_end(arguments);
  _exit(1);
}

void skip_case(const char* reason, ...) {
  va_list arguments;
  va_start(arguments, reason);
  write_line(STDOUT_FILENO, "", reason, arguments);
  va_end(arguments);
  _exit(77);
}

pthread_t start_thread(void* (*body)(void*), void* argument) {
  pthread_t thread;
  const int result = pthread_create(&thread, NULL, body, argument);
  CHECK(result == 0, "pthread_create: %s", strerrorname_np(result));
  return thread;
}

void run_thread(void* (*body)(void*), void* argument) {
  CHECK(pthread_join(start_thread(body, argument), NULL) == 0, "pthread_join");
}

void filter_system_calls(struct sock_filter* instructions, size_t count) {
  struct sock_fprog program = {.len = (unsigned short)count, .filter = instructions};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    skip_case("seccomp: %s", strerrorname_np(errno));
  }
}

// A word at any address, in place of memcpy: with -fno-builtin that is a call for each of them.
typedef uint64_t __attribute__((aligned(1), may_alias)) word_anywhere;

static uint64_t pattern_word(uint64_t seed, size_t index) {
  uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
  return word ^ (word >> 29);
}

void fill(void* block, size_t size, uint64_t seed) {
  word_anywhere* content = block;
  size_t words = size / sizeof(uint64_t);
  for (size_t i = 0; i < words; ++i) {
    content[i] = pattern_word(seed, i);
  }
  uint64_t last = pattern_word(seed, words);
  memcpy(content + words, &last, size % sizeof last);
}

bool holds(const void* block, size_t size, uint64_t seed) {
  const word_anywhere* content = block;
  size_t words = size / sizeof(uint64_t);
  for (size_t i = 0; i < words; ++i) {
    if (content[i] != pattern_word(seed, i)) {
      return false;
    }
  }
  uint64_t last = pattern_word(seed, words);
  return memcmp(content + words, &last, size % sizeof last) == 0;
}

bool is_zero(const void* block, size_t size) {
  const unsigned char* bytes = block;
  return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

void* obtain(size_t size) {
  void* block = hidden(malloc(size));
  CHECK(block != NULL, "malloc(%zu)", size);
  return block;
}

size_t interesting_sizes(size_t* sizes, size_t capacity, size_t largest) {
  size_t count = 0;
  for (size_t size = 0; size <= 130 && size <= largest && count < capacity; ++size) {
    sizes[count++] = size;
  }
  for (size_t octave = 128; octave <= largest; octave *= 2) {
    static const int offsets[] = {-16, -1, 0, 1, 16};
    for (size_t half = 0; half < 2; ++half) {
      for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i) {
        size_t size = octave + half * octave / 2 + (size_t)offsets[i];
        if (size > 130 && size <= largest && count < capacity) {
          sizes[count++] = size;
        }
      }
    }
  }
  return count;
}

// Behind "\nName:" in `status`. Not from `statm`: an emulator may show its own system's file, which
// counts in pages of another size.
static size_t status_number(const char* name) {
  char text[4096];
  int descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  CHECK(descriptor >= 0, "cannot read /proc/self/status");
  ssize_t length = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  CHECK(length > 0, "/proc/self/status is empty");
  text[length] = '\0';
  const char* line = strstr(text, name);
  CHECK(line != NULL, "/proc/self/status does not tell %s", name + 1);
  return strtoul(line + strlen(name), NULL, 10);
}

size_t resident_bytes(void) { return status_number("\nVmRSS:") * KIB; }
size_t mapped_bytes(void) { return status_number("\nVmSize:") * KIB; }
size_t thread_count(void) { return status_number("\nThreads:"); }

void limit_address_space(size_t more) {
  size_t counted = 0;
  do {
    counted = mapped_bytes();
    const struct rlimit limit = {counted + more, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
  } while (mapped_bytes() < counted);
}

void* find_function(const char* name) {
  void* function = dlsym(RTLD_DEFAULT, name);
  CHECK(function != NULL, "no function named %s", name);
  return function;
}

const char* provider_of(void* function, char path[4096]) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || realpath(info.dli_fname, path) == NULL) {
    path[0] = '\0';
  }
  return path;
}

const char* library_under_test(char path[4096]) {
  const char* name = getenv("TEST_LIBRARY");
  CHECK(name != NULL, "TEST_LIBRARY is not set");
  CHECK(realpath(name, path) != NULL, "there is no library %s", name);
  return path;
}

void verify_allocator(void) {
  if (getenv("TEST_LIBRARY") == NULL) {
    return;
  }
  char expected[PATH_MAX];
  char actual[PATH_MAX];
  library_under_test(expected);
  provider_of(find_function("malloc"), actual);
  CHECK(strcmp(expected, actual) == 0, "malloc is provided by %s, not by %s", actual, expected);
}
