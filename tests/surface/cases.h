// A test program is a set of named cases, one run per process: `program case`, `program --list`.
// Exit status 0: the case holds; 1: it does not, the reason is on stderr; 77: it cannot be tried
// here, the reason is on stdout.
#ifndef ALLOD_TESTS_CASES_H
#define ALLOD_TESTS_CASES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test_case {
  const char* name;
  void (*run)(void);
};

// Defines a case and registers it; the definition is the only place that names it.
#define CASE(id)                                                                                 \
  static void id(void);                                                                          \
  static const struct test_case id##_case = {#id, id};                                           \
  __attribute__((section("test_cases"), used)) static const struct test_case* const id##_entry = \
      &id##_case;                                                                                \
  static void id(void)

// Ends the process with status 1 and the message when the condition does not hold. Allocates
// nothing itself, so that it can be used where allocation is what fails.
#define CHECK(condition, ...) \
  ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))

__attribute__((noreturn, cold, format(printf, 4, 5))) void check_failed(const char* file, int line,
                                                                        const char* condition,
                                                                        const char* format, ...);
__attribute__((noreturn, cold, format(printf, 1, 2))) void skip_case(const char* reason, ...);

// A thread, which must start.
pthread_t start_thread(void* (*body)(void*), void* argument);
// One that has ended.
void run_thread(void* (*body)(void*), void* argument);

struct sock_filter;
// Puts a filter on the system calls of this process, for good; skips the case where it cannot.
void filter_system_calls(struct sock_filter* instructions, size_t count);

// The name of the case that runs.
extern const char* case_name;

enum { KIB = 1024, MIB = 1024 * KIB };

// Hides where a value came from, so that the compiler can neither drop an allocation nor reason
// about what was done with it.
static inline void* hidden(void* p) {
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}
static inline size_t hidden_size(size_t n) {
  __asm__ volatile("" : "+r"(n));
  return n;
}

static inline bool is_aligned(const void* p, size_t alignment) {
  return ((uintptr_t)p & (alignment - 1)) == 0;
}

// The alignment the allocator owes any block of this size.
static inline size_t natural_alignment(size_t size) { return size <= 8 ? 8 : 16; }

// A pattern that depends on the seed and on every position: `holds` finds a byte that is lost,
// moved, or written by the owner of another block.
void fill(void* block, size_t size, uint64_t seed);
bool holds(const void* block, size_t size, uint64_t seed);
bool is_zero(const void* block, size_t size);

// malloc that must succeed.
void* obtain(size_t size);

// The sizes around which an allocator is likely to change its mind, ascending: every size to 130,
// then each power of two, the middle of each octave and their neighbours, up to `largest`.
// Returns how many were written.
size_t interesting_sizes(size_t* sizes, size_t capacity, size_t largest);

// Bytes of this process in memory, and bytes of its address space, read without allocating.
size_t resident_bytes(void);
size_t mapped_bytes(void);
// Threads of this process, as the system counts them, read without allocating.
size_t thread_count(void);
// Limits the address space to what there is now, and so many bytes. The library gives up addresses
// before a limit holds: they are not counted.
void limit_address_space(size_t more);

// A function of the running process by name; the case fails when there is none.
void* find_function(const char* name);
// The file that provides the function, as the kernel names it; an empty string when unknown.
const char* provider_of(void* function, char path[4096]);
// Fails when malloc is not the library's that TEST_LIBRARY names, if it names one: a run on
// the wrong allocator would prove nothing. Programs of cases do this by themselves.
void verify_allocator(void);
// The library under test, as the kernel names it, from TEST_LIBRARY.
const char* library_under_test(char path[4096]);

#ifdef __cplusplus
}
#endif
#endif
