// Leaks of all shapes, as many blocks in each as test_leaks.py says, and as LeakSanitizer finds.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

struct node {
  struct node* volatile left;
  struct node* volatile right;
  char text[40];
};
enum { MANY = 1000 };

// Of what was called before, nothing is left on the stack by chance.
__attribute__((noinline)) static void overwrite_stack(void) {
  volatile char bytes[60000];
  memset((void*)bytes, 0, sizeof bytes);
}
__attribute__((noinline)) static struct node* node(void) {
  struct node* made = obtain(sizeof *made);
  memset((void*)made, 0, sizeof *made);
  return made;
}

__attribute__((noinline)) static void forget(int count) {
  for (int i = 0; i < count; ++i) node();
}
CASE(one_block) {
  forget(1);
  overwrite_stack();
}
CASE(many_blocks) {
  forget(MANY);
  overwrite_stack();
}

__attribute__((noinline)) static void forget_sizes(void) {
  for (size_t size = 1; size < 8 * MIB; size = size * 3 / 2 + 1) *(char*)hidden(obtain(size)) = 1;
}
CASE(blocks_of_all_sizes) {
  forget_sizes();
  overwrite_stack();
}

__attribute__((noinline)) static struct node* chain(struct node** last) {
  struct node* const head = node();
  *last = head;
  for (int i = 1; i < MANY; ++i) *last = (*last)->left = node();
  return head;
}
__attribute__((noinline)) static void forget_list(void) {
  struct node* last;
  chain(&last);
}
CASE(a_list) {
  forget_list();
  overwrite_stack();
}
__attribute__((noinline)) static void forget_ring(void) {
  struct node* last;
  struct node* const head = chain(&last);
  last->left = head;
}
CASE(a_ring) {
  forget_ring();
  overwrite_stack();
}
__attribute__((noinline)) static struct node* tree(int depth) {
  struct node* const made = node();
  if (depth > 0) {
    made->left = tree(depth - 1);
    made->right = tree(depth - 1);
  }
  return made;
}
CASE(a_tree) {
  tree(9);
  overwrite_stack();
}

static struct node* volatile kept[MANY];
__attribute__((noinline)) static void keep_many(void) {
  for (int i = 0; i < MANY; ++i) kept[i] = node();
}
__attribute__((noinline)) static int lowest_kept(void) {
  int lowest = 0;
  for (int i = 0; i < MANY; ++i) {
    if (kept[i] < kept[lowest]) lowest = i;
  }
  return lowest;
}
__attribute__((noinline)) static int highest_kept(void) {
  int highest = 0;
  for (int i = 0; i < MANY; ++i) {
    if (kept[i] > kept[highest]) highest = i;
  }
  return highest;
}
CASE(the_lowest_and_the_highest_of_many) {
  keep_many();
  const int lowest = lowest_kept();
  const int highest = highest_kept();
  kept[lowest] = kept[highest] = NULL;
  overwrite_stack();
}

static void* forget_on_stack(void* unused) {
  struct node* volatile nodes[MANY];
  for (int i = 0; i < MANY; ++i) nodes[i] = node();
  return nodes[0] == NULL ? NULL : unused;
}
CASE(on_the_stack_of_a_thread_that_has_ended) {
  run_thread(forget_on_stack, NULL);
  overwrite_stack();
}
CASE(on_the_stacks_of_many_threads_that_have_ended) {
  enum { THREADS = 20 };
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) threads[i] = start_thread(forget_on_stack, NULL);
  for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
  overwrite_stack();
}

static _Thread_local struct node* volatile of_thread[100];
static void* forget_in_variables(void* unused) {
  for (int i = 0; i < 100; ++i) of_thread[i] = node();
  return unused;
}
CASE(in_variables_of_a_thread_that_has_ended) {
  run_thread(forget_in_variables, NULL);
  overwrite_stack();
}
static void* ignore(void* argument) { return argument == NULL ? argument : NULL; }
__attribute__((noinline)) static void forget_argument(void) { run_thread(ignore, node()); }
CASE(the_argument_of_a_thread_that_has_ended) {
  forget_argument();
  overwrite_stack();
}

static int ends[2];
static void* keep_and_sleep(void* unused) {
  struct node* volatile nodes[10];
  for (int i = 0; i < 10; ++i) nodes[i] = of_thread[i] = node();
  for (int i = 0; i < 10; ++i) nodes[i] = node();
  CHECK(write(ends[1], "", 1) == 1, "write");
  pause();
  return nodes[0] == NULL ? NULL : unused;
}
static void start_sleeper(void) {
  pthread_t thread;
  char byte;
  CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, keep_and_sleep, NULL) == 0, "thread");
  CHECK(read(ends[0], &byte, 1) == 1, "read");
}
CASE(nothing_that_a_thread_has) {
  start_sleeper();
  overwrite_stack();
}
#if defined(__x86_64__)
static int never[2];
// The address is nowhere in memory, but for its complement.
__attribute__((noinline)) static uintptr_t hide_block(void) { return ~(uintptr_t)obtain(100); }
static void* read_where_nobody_knows(void* unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  const uintptr_t block = hide_block();
  overwrite_stack();
  CHECK(write(ends[1], "", 1) == 1, "write");
  long result = SYS_read;
  __asm__ volatile("mov %2, %%rsi\n not %%rsi\n syscall\n xor %%esi, %%esi"
                   : "+a"(result)
                   : "D"((long)never[0]), "r"(block), "d"(100L)
                   : "rsi", "rcx", "r11", "memory");
  return result == 0 ? NULL : unused;
}
// It is in a register alone, of a thread that cannot be stopped.
CASE(nothing_that_a_thread_has_given_to_the_system) {
  char byte;
  CHECK(pipe(ends) == 0 && pipe(never) == 0, "pipe");
  start_thread(read_where_nobody_knows, NULL);
  CHECK(read(ends[0], &byte, 1) == 1, "read");
  overwrite_stack();
}
#endif
// Its threads are not there.
CASE(in_the_child_of_a_fork) {
  start_sleeper();
  const pid_t child = fork();
  overwrite_stack();
  if (child == 0) exit(0);
  CHECK(waitpid(child, NULL, 0) == child, "waitpid");
  _exit(0);
}

// A thread that ends the process on a stack of the program's, beside other data.
static struct {
  struct node* kept[MANY];
  _Alignas(64) char stack[256 * KIB];
} place;
static void* keep_and_exit(void* unused) {
  for (int i = 0; i < MANY; ++i) place.kept[i] = node();
  forget(MANY);
  overwrite_stack();
  exit(0);
  return unused;
}
CASE(a_search_on_a_stack_beside_data) {
  pthread_t thread;
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0, "attributes");
  CHECK(pthread_attr_setstack(&attributes, place.stack, sizeof place.stack) == 0, "stack");
  CHECK(pthread_create(&thread, &attributes, keep_and_exit, NULL) == 0, "pthread_create");
  pthread_join(thread, NULL);
}

static void call_plugin(const char* function, bool closes) {
  void* const plugin = dlopen(PLUGIN, RTLD_NOW);
  CHECK(plugin != NULL, "%s", dlerror());
  void (*call)(void) = (void (*)(void))dlsym(plugin, function);
  CHECK(call != NULL, "%s", dlerror());
  call();
  if (closes) CHECK(dlclose(plugin) == 0, "dlclose");
}
CASE(in_a_library_that_was_closed) {
  call_plugin("keep", true);
  overwrite_stack();
}
CASE(nothing_that_a_library_has) {
  call_plugin("keep", false);
  call_plugin("keep_for_thread", false);
  overwrite_stack();
}
