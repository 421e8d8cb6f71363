// The heap profile through the C API, against what the program knows of itself.
#include <allod.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static allod_profile_summary_t summary(void) {
  allod_profile_summary_t summary;
  CHECK(allod_profile_summary_get(&summary, sizeof summary) == 0, "no summary");
  return summary;
}
static void start(size_t interval) {
  CHECK(allod_profile_start(interval) == 0, "does not start");
  allod_profile_reset();
}
// An estimate of `count` blocks of `bytes` deviates by more once in four million times where it is
// made of a dozen samples, and more rarely where it is made of more.
static double tolerance(double count, double bytes, double interval) {
  const double likely = -expm1(-bytes / interval);
  return 6 * sqrt(count * (1 - likely) / likely) + 2;
}
static void check_blocks(const char* what, uint64_t estimate, double count, double bytes,
                         double interval) {
  const double off = fabs((double)estimate - count);
  const double most = tolerance(count, bytes, interval);
  CHECK(off <= most, "%s: %.0f blocks of %.0f bytes are estimated as %llu; at most %.0f off", what,
        count, bytes, (unsigned long long)estimate, most);
}

enum { MOST = 200000 };
static void* blocks[MOST];

CASE(estimates_are_as_close_as_theory_says) {
  const size_t sizes[] = {8, 112, 1024, 3072, 40960, 163840, 1048576, 8388608};
  const size_t interval = 1 << 16;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t size = sizes[i];
    const size_t many = 64 * (size_t)MIB / size;
    const size_t count = many < MOST ? many : MOST;
    const allod_profile_summary_t before = summary();
    start(interval);
    for (size_t k = 0; k < count; ++k) blocks[k] = malloc(size);
    allod_profile_stop();
    const allod_profile_summary_t all = summary();
    check_blocks("total", all.total.blocks, (double)count, (double)size, (double)interval);
    check_blocks("live", all.live.blocks - before.live.blocks, (double)count, (double)size,
                 (double)interval);
    for (size_t k = 0; k < count; k += 2) free(blocks[k]);
    check_blocks("half", summary().live.blocks - before.live.blocks, (double)(count / 2),
                 (double)size, (double)interval);
    for (size_t k = 1; k < count; k += 2) free(blocks[k]);
    CHECK(summary().live.blocks == before.live.blocks, "something is still known");
  }
}

CASE(what_is_allocated_and_freed_again_and_again_is_counted) {
  const size_t count = 2000000;
  start(1 << 16);
  for (size_t k = 0; k < count; ++k) free(malloc(k % 2 == 0 ? 128 : 2048));
  allod_profile_stop();
  // The smaller ones alone deviate more.
  const double expected = (double)count / 2;
  const double most = tolerance(expected, 128, 1 << 16) + tolerance(expected, 2048, 1 << 16);
  const double off = fabs((double)summary().total.blocks - (double)count);
  CHECK(off <= most, "%.0f off, at most %.0f", off, most);
  CHECK(summary().live.blocks == 0, "something is live");
}

CASE(with_interval_1_nothing_is_estimated) {
  const size_t sizes[] = {1, 24, 500, 5000, 70000, 700000, 7000000};
  start(1);
  const allod_profile_summary_t before = summary();
  size_t bytes = 0;
  for (int i = 0; i < 700; ++i) {
    blocks[i] = i % 3 == 0 ? calloc(1, sizes[i % 7]) : malloc(sizes[i % 7]);
    bytes += sizes[i % 7];
  }
  allod_profile_summary_t after = summary();
  CHECK(after.live.blocks - before.live.blocks == 700, "%llu blocks",
        (unsigned long long)(after.live.blocks - before.live.blocks));
  CHECK(after.live.requested - before.live.requested == bytes, "not as asked for");
  for (int i = 0; i < 700; ++i) blocks[i] = realloc(blocks[i], 2 * sizes[i % 7] + 100);
  after = summary();
  CHECK(after.live.blocks - before.live.blocks == 700, "realloc loses blocks");
  for (int i = 0; i < 700; ++i) free(blocks[i]);
  CHECK(summary().live.blocks == before.live.blocks, "something is still known");
}

struct Wanted {
  const char* begin;
  const char* end;
  uint64_t live, peak, total;
};
static int add_stack(const allod_profile_stack_t* stack, void* context) {
  struct Wanted* const wanted = context;
  for (size_t i = 0; i < stack->depth; ++i) {
    const char* const frame = (const char*)stack->frames[i];
    if (frame <= wanted->begin || frame > wanted->end) continue;
    wanted->live += stack->live.blocks;
    wanted->peak += stack->peak.blocks;
    wanted->total += stack->total.blocks;
    break;
  }
  return 0;
}
static struct Wanted blocks_within(const char* begin, const char* end) {
  struct Wanted wanted = {begin, end, 0, 0, 0};
  CHECK(allod_profile_visit_stacks(add_stack, &wanted) == 0, "stopped");
  return wanted;
}
// In sections of their own, whose bounds the linker knows.
__attribute__((noinline, section("some"))) static void fill_some(size_t from, size_t to,
                                                                 size_t size) {
  for (size_t k = from; k < to; ++k) blocks[k] = malloc(size);
}
__attribute__((noinline, section("others"))) static void fill_others(size_t from, size_t to,
                                                                     size_t size) {
  for (size_t k = from; k < to; ++k) blocks[k] = malloc(size);
}
extern const char __start_some[], __stop_some[], __start_others[], __stop_others[];
#define BLOCKS_OF(section) blocks_within(__start_##section, __stop_##section)

CASE(each_function_has_what_it_allocated) {
  start(1);
  fill_some(0, 100, 1000);
  fill_others(100, 400, 2000);
  CHECK(BLOCKS_OF(some).live == 100, "some");
  CHECK(BLOCKS_OF(others).live == 300, "others");
  for (size_t k = 0; k < 400; ++k) free(blocks[k]);
  const struct Wanted gone = BLOCKS_OF(others);
  CHECK(gone.live == 0 && gone.total == 300, "not gone");
}

CASE(the_peak_is_what_was_live_then) {
  start(1);
  fill_some(0, 100, 1 << 20);
  fill_others(100, 200, 1 << 10);
  for (size_t k = 0; k < 200; ++k) free(blocks[k]);
  fill_others(0, 1000, 1 << 10);
  CHECK(BLOCKS_OF(some).peak == 100, "some");
  CHECK(BLOCKS_OF(others).peak == 100, "others: %llu", (unsigned long long)BLOCKS_OF(others).peak);
  CHECK(BLOCKS_OF(others).live == 1000, "live");
  for (size_t k = 0; k < 1000; ++k) free(blocks[k]);
}

struct Counted {
  size_t size;
  uint64_t allocated;
  uint64_t freed;
};
static int add_class(const allod_profile_class_t* row, void* context) {
  struct Counted* const counted = context;
  if (row->size != counted->size) return 0;
  counted->allocated += row->allocated_blocks;
  counted->freed += row->freed_blocks;
  return 0;
}
static struct Counted count_of(size_t size) {
  struct Counted counted = {size, 0, 0};
  allod_profile_visit_classes(add_class, &counted);
  return counted;
}
static void* churn(void* argument) {
  (void)argument;
  void* own[50] = {0};
  for (int i = 0; i < 100000; ++i) {
    void** const place = &own[i * 7 % 50];
    free(*place);
    *place = malloc(1500);
  }
  for (int i = 0; i < 50; ++i) free(own[i]);
  return NULL;
}

CASE(counts_by_class_are_exact) {
  start(1 << 19);
  const size_t size = allod_malloc_good_size(1500);
  const struct Counted before = count_of(size);
  pthread_t threads[12];
  for (int i = 0; i < 12; ++i) pthread_create(&threads[i], NULL, churn, NULL);
  for (int i = 0; i < 12; ++i) pthread_join(threads[i], NULL);
  churn(NULL);
  const struct Counted after = count_of(size);
  CHECK(after.allocated - before.allocated == 1300000, "%llu allocated",
        (unsigned long long)(after.allocated - before.allocated));
  CHECK(after.freed - before.freed == 1300000, "%llu freed",
        (unsigned long long)(after.freed - before.freed));
}

static void* on_and_off(void* done) {
  for (unsigned i = 0; !__atomic_load_n((int*)done, __ATOMIC_ACQUIRE); ++i) {
    allod_profile_start((size_t)1 << (i % 20));
    (void)summary();
    allod_profile_stop();
  }
  return NULL;
}

CASE(may_be_switched_while_threads_work) {
  int done = 0;
  pthread_t switching;
  pthread_t threads[8];
  pthread_create(&switching, NULL, on_and_off, &done);
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, churn, NULL);
  for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
  pthread_join(switching, NULL);
  allod_profile_stop();
}

CASE(a_child_goes_on_with_what_its_parent_knew) {
  start(1);
  const uint64_t before = summary().live.blocks;
  for (int i = 0; i < 100; ++i) blocks[i] = malloc(1000);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 50; ++i) free(blocks[i]);
    CHECK(summary().live.blocks == before + 50, "child: %llu",
          (unsigned long long)summary().live.blocks);
    for (int i = 0; i < 50; ++i) blocks[i] = malloc(100);
    CHECK(summary().live.blocks == before + 100, "child, later");
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %d", status);
  CHECK(summary().live.blocks == before + 100, "parent");
  for (int i = 0; i < 100; ++i) free(blocks[i]);
}

static void allocate_in_handler(int number) {
  (void)number;
  void* const block = malloc(200);
  void* const other = blocks[0];
  blocks[0] = NULL;
  free(other);
  free(block);
}
static void* interrupt(void* victim) {
  for (int i = 0; i < 5000; ++i) pthread_kill(*(pthread_t*)victim, SIGUSR1);
  return NULL;
}

CASE(a_handler_may_interrupt_the_profile) {
  // Samples large enough to have no magazine: what a handler does to magazines is another matter.
  start(1);
  signal(SIGUSR1, allocate_in_handler);
  pthread_t self = pthread_self();
  pthread_t thread;
  pthread_create(&thread, NULL, interrupt, &self);
  for (int i = 0; i < 20000; ++i) {
    void* const block = malloc(200);
    void* const before = __atomic_exchange_n(&blocks[0], block, __ATOMIC_ACQ_REL);
    free(before);
  }
  pthread_join(thread, NULL);
  signal(SIGUSR1, SIG_DFL);
}

static int count_block(const allod_profile_block_t* block, void* context) {
  CHECK(allod_malloc_usable_size(block->address) >= block->requested, "too small");
  ++*(uint64_t*)context;
  return 0;
}

CASE(every_sample_is_visited) {
  start(1);
  for (int i = 0; i < 5000; ++i) blocks[i] = malloc((size_t)i);
  uint64_t count = 0;
  CHECK(allod_profile_visit_blocks(count_block, &count) == 0, "stopped");
  CHECK(count == summary().live_samples, "%llu of %llu", (unsigned long long)count,
        (unsigned long long)summary().live_samples);
  for (int i = 0; i < 5000; i += 2) free(blocks[i]);
  uint64_t rest = 0;
  CHECK(allod_profile_visit_blocks(count_block, &rest) == 0, "stopped");
  CHECK(rest + 2500 == count, "%llu of %llu stay", (unsigned long long)rest,
        (unsigned long long)count);
  for (int i = 1; i < 5000; i += 2) free(blocks[i]);
}

static void* volatile kept;
__attribute__((noinline)) static void lose_blocks(int count) {
  for (int i = 0; i < count; ++i) kept = malloc(300);
  kept = NULL;
}
__attribute__((noinline)) static void clear_stack(void) {
  volatile char bytes[1 << 15];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = 0;
}

CASE(leaks_are_found_between_two_calls) {
  start(1);
  const char* const file = "/dev/null";
  CHECK(allod_option_set("LEAKS_FILE", file) == 0, "option");
  lose_blocks(10);
  clear_stack();
  const long before = allod_leaks_check();
  CHECK(before >= 9 && before <= 10, "%ld leak", before);
  allod_leaks_begin();
  CHECK(allod_leaks_check() == 0, "old leaks are told");
  lose_blocks(50);
  clear_stack();
  const long after = allod_leaks_check();
  CHECK(after >= 49 && after <= 50, "%ld leak", after);
}

/* Each leads to a small block by its last word, and is held by its last byte. */
__attribute__((noinline)) static void hold_by_the_end(const size_t* sizes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void** const block = calloc(1, sizes[i]);
    block[sizes[i] / sizeof(void*) - 1] = malloc(64);
    blocks[i] = (char*)block + sizes[i] - 1;
  }
}
CASE(blocks_count_to_their_ends) {
  start(1);
  CHECK(allod_option_set("LEAKS_FILE", "/dev/null") == 0, "option");
  allod_leaks_begin();
  const size_t sizes[] = {24, 1000, 32744, 32752, 32760, 32768, 40000, 65536, 1 << 20, 5 << 20};
  const size_t count = sizeof sizes / sizeof *sizes;
  hold_by_the_end(sizes, count);
  clear_stack();
  CHECK(allod_leaks_check() == 0, "something leaks");
  for (size_t i = 0; i < count; ++i) blocks[i] = NULL;
  clear_stack();
  const long leaks = allod_leaks_check();
  CHECK(leaks >= 2 * (long)count - 2 && leaks <= 2 * (long)count, "%ld leak", leaks);
}

static void** page_of_pointers;
static void keep_blocks_in_page(int count) {
  for (int i = 0; i < count; ++i) page_of_pointers[i] = malloc(123);
}
CASE(what_memory_that_is_only_read_leads_to_does_not_leak) {
  start(1);
  CHECK(allod_option_set("LEAKS_FILE", "/dev/null") == 0, "option");
  allod_leaks_begin();
  const size_t size = 64 * KIB;
  page_of_pointers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page_of_pointers != MAP_FAILED, "mmap");
  keep_blocks_in_page(100);
  clear_stack();
  CHECK(mprotect(page_of_pointers, size, PROT_READ) == 0, "mprotect");
  CHECK(allod_leaks_check() == 0, "something leaks");
}

CASE(a_search_for_leaks_stops_before_guards) {
  start(1);
  CHECK(allod_option_set("LEAKS_FILE", "/dev/null") == 0, "option");
  allod_heap_options_t options = {.struct_size = sizeof options, .hardened = 1};
  allod_heap_t* heap = allod_heap_new_ex(&options);
  CHECK(heap != NULL, "no heap");
  for (size_t size = 16; size < 20 * MIB; size *= 3) {
    CHECK(allod_heap_malloc(heap, size) != NULL, "size %zu", size);
  }
  CHECK(allod_leaks_check() == 0, "something leaks");
  allod_heap_destroy(heap);
}

static void* keep_one(void* block) {
  void* volatile own = block;
  allocate_in_handler(0);
  while (kept == NULL) sched_yield();
  return own;
}

CASE(stopped_threads_go_on) {
  start(1);
  CHECK(allod_option_set("LEAKS_FILE", "/dev/null") == 0, "option");
  kept = NULL;
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, keep_one, malloc(500));
  clear_stack();
  for (int i = 0; i < 20; ++i) CHECK(allod_leaks_check() == 0, "something leaks");
  kept = blocks;
  for (int i = 0; i < 8; ++i) {
    void* block;
    CHECK(pthread_join(threads[i], &block) == 0, "thread");
    free(block);
  }
}

static char signal_stack[1 << 16];
static pthread_barrier_t all_are_ready;
static void* rest_with_signal_stack(void* unused) {
  const stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
  CHECK(sigaltstack(&stack, NULL) == 0, "sigaltstack");
  pthread_barrier_wait(&all_are_ready);
  while (kept == NULL) sched_yield();
  return unused;
}
// They would overwrite each other's registers.
CASE(threads_that_share_a_signal_stack_are_stopped_on_their_own) {
  start(1);
  CHECK(allod_option_set("LEAKS_FILE", "/dev/null") == 0, "option");
  kept = NULL;
  pthread_t threads[8];
  CHECK(pthread_barrier_init(&all_are_ready, NULL, 9) == 0, "barrier");
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, rest_with_signal_stack, NULL);
  pthread_barrier_wait(&all_are_ready);
  for (int i = 0; i < 20; ++i) allod_leaks_check();
  CHECK(is_zero(signal_stack, sizeof signal_stack), "a thread was stopped there");
  kept = blocks;
  for (int i = 0; i < 8; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "thread");
}
