// Stacks of every kind, walked by our own reader of unwind tables and by libgcc's.
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <string>

#include "both.hpp"
#include "cases.h"

namespace {

void compare() { CHECK(same_by_both(), "our walk has given up"); }

// More frames than there were.
void compare_deeper_than(unsigned frames) {
  compare();
  CHECK(frames_by_both() > frames, "%u frames", frames_by_both());
}

[[gnu::noinline]] int descend(int depth) {
  if (depth == 0) compare_deeper_than(22);
  const int below = depth == 0 ? 1 : descend(depth - 1);
  return below + static_cast<int>(hidden_size(1));
}

[[gnu::noinline]] void with_variable_frame(std::size_t bytes) {
  auto* const block = static_cast<char*>(alloca(bytes));
  memset(block, 1, bytes);
  hidden(block);
  compare();
  hidden(block);
}

[[gnu::noinline]] void with_aligned_frame(std::size_t bytes) {
  alignas(64) char block[64];
  auto* const variable = static_cast<char*>(alloca(bytes));
  memset(block, 1, sizeof block);
  hidden(block);
  hidden(variable);
  compare();
  hidden(block);
}

CASE(functions_without_frame_pointers) {
  for (int i = 0; i < 3; ++i) descend(20);
}

CASE(frames_of_variable_size) {
  for (std::size_t bytes = 16; bytes < 100000; bytes *= 3) {
    with_variable_frame(bytes);
    with_aligned_frame(bytes);
  }
}

struct ComparesInDestructor {
  std::string name = "long enough to lie in a block of its own";
  ComparesInDestructor() = default;
  ComparesInDestructor(const ComparesInDestructor&) = delete;
  ComparesInDestructor& operator=(const ComparesInDestructor&) = delete;
  ~ComparesInDestructor() { compare(); }
};

[[gnu::noinline]] void throws(int depth) {
  const ComparesInDestructor here;
  if (depth == 0) throw std::string("thrown");
  throws(depth - 1);
}

CASE(exceptions_in_flight) {
  for (int i = 0; i < 3; ++i) {
    try {
      throws(5);
      CHECK(false, "nothing was thrown");
    } catch (const std::string&) {
      compare();
    }
  }
}

void compare_at_signal(int) { compare(); }

void install(int number, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  CHECK(sigaction(number, &action, nullptr) == 0, "no handler");
}

void use_other_stack() {
  constexpr std::size_t kBytes = 256 * KIB;
  stack_t stack = {};
  stack.ss_sp = malloc(kBytes);
  stack.ss_size = kBytes;
  CHECK(sigaltstack(&stack, nullptr) == 0, "no other stack");
}

CASE(a_signal_and_a_signal_on_a_stack_of_its_own) {
  use_other_stack();
  for (const int flags : {0, SA_ONSTACK}) {
    install(SIGUSR1, compare_at_signal, flags);
    raise(SIGUSR1);
    raise(SIGUSR1);
  }
}

// A program may return from its handlers by itself, through code that no table describes.
asm(".pushsection .text\n\t"
    ".skip 16, 0x90\n"
    "bare_return:\n\t"
    "mov $15, %rax\n\t"
    "syscall\n\t"
    ".skip 16, 0x90\n\t"
    ".popsection");
extern "C" void bare_return();

CASE(a_signal_whose_way_back_is_not_described) {
  constexpr unsigned long kOwnReturn = 0x04000000;
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*way_back)();
    std::uint64_t blocked;
  } const action = {compare_at_signal, kOwnReturn, bare_return, 0};
  CHECK(syscall(SYS_rt_sigaction, SIGUSR1, &action, nullptr, 8) == 0, "no handler");
  raise(SIGUSR1);
  CHECK(frames_by_both() > 3, "the walk has ended at the handler");
}

sigjmp_buf after_fault;

void compare_at_fault(int) {
  compare();
  siglongjmp(after_fault, 1);
}

[[gnu::noinline]] int touch(const volatile int* address) { return *address; }

CASE(a_fault_and_a_call_to_nowhere) {
  install(SIGSEGV, compare_at_fault, SA_NODEFER);
  if (sigsetjmp(after_fault, 1) == 0) touch(static_cast<int*>(hidden(nullptr)));
  void* const nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sigsetjmp(after_fault, 1) == 0) {
    reinterpret_cast<void (*)()>(hidden(nowhere))();
  }
}

// --- after every single instruction -------------------------------------------------

unsigned long steps = 0;
unsigned long given_up = 0;

void compare_at_step(int) {
  ++steps;
  if (!same_by_both()) ++given_up;
}

constexpr unsigned long kTrapFlag = 0x100;
[[gnu::noinline]] void step_singly(bool on) {
  if (on) {
    asm volatile(
        "pushfq\n\t.cfi_adjust_cfa_offset 8\n\torq %0, (%%rsp)\n\t"
        "popfq\n\t.cfi_adjust_cfa_offset -8" ::"i"(kTrapFlag)
        : "memory", "cc");
  } else {
    asm volatile(
        "pushfq\n\t.cfi_adjust_cfa_offset 8\n\tandq %0, (%%rsp)\n\t"
        "popfq\n\t.cfi_adjust_cfa_offset -8" ::"i"(~kTrapFlag)
        : "memory", "cc");
  }
}

int by_value(const void* left, const void* right) {
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

[[gnu::noinline]] void call_libc() {
  int numbers[] = {5, 2, 7, 1};
  char text[40];
  qsort(numbers, 4, sizeof *numbers, by_value);
  snprintf(text, sizeof text, "%d %s %.3f", numbers[0], "is least of", strtod("2.5", nullptr));
  free(malloc(hidden_size(100)));
  CHECK(strcmp(text, "1 is least of 2.500") == 0, "%s", text);
}

void call_libc_in_steps() {
  use_other_stack();
  install(SIGTRAP, compare_at_step, SA_ONSTACK);
  step_singly(true);
  call_libc();
  step_singly(false);
}

// Beginnings and ends of functions, and entries of the table of those that are bound at run time.
CASE(every_instruction) {
  call_libc();
  call_libc_in_steps();
  CHECK(steps > 1000 && given_up == 0, "%lu of %lu steps given up", given_up, steps);
}

// The loader, while it binds a function, keeps where its frame is in a register that our walk does
// not follow: there libgcc's has to do it.
CASE(every_instruction_while_functions_are_bound) {
  call_libc_in_steps();
  CHECK(steps > 2000 && given_up > 0 && given_up < steps, "%lu of %lu steps given up", given_up,
        steps);
}

// --- stacks of threads and coroutines -----------------------------------------------

CASE(a_thread) {
  const auto run = [](void*) -> void* {
    descend(20);
    return nullptr;
  };
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, run, nullptr) == 0, "no thread");
  pthread_join(thread, nullptr);
}

ucontext_t outside;
ucontext_t inside;

CASE(a_coroutine) {
  constexpr std::size_t kBytes = 256 * KIB;
  getcontext(&inside);
  inside.uc_stack.ss_sp = malloc(kBytes);
  inside.uc_stack.ss_size = kBytes;
  inside.uc_link = &outside;
  makecontext(&inside, [] { descend(20); }, 0);
  swapcontext(&outside, &inside);
}

// --- libraries that come and go -----------------------------------------------------

void* call_back_from(const char* name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
  CHECK(length > 0, "where is the program?");
  path[length] = 0;
  snprintf(strrchr(path, '/') + 1, 64, "%s", name);
  void* const library = dlopen(path, RTLD_NOW);
  CHECK(library != nullptr, "%s", dlerror());
  void* const function = dlsym(library, "call_back");
  for (int i = 0; i < 2; ++i) reinterpret_cast<void (*)(void (*)())>(function)(compare);
  dlclose(library);
  return function;
}

// What was learned of the first must not be believed of the second.
CASE(a_library_in_the_place_of_another) {
  void* const before = call_back_from("libunwind_frame_256.so");
  void* const after = call_back_from("libunwind_frame_512.so");
  if (before != after) skip_case("the second library is elsewhere");
}

// --- stacks that are none -----------------------------------------------------------

void expect_an_end() {
  const unsigned frames = frames_by_ours();
  CHECK(frames >= 2 && frames <= 4, "%u frames", frames);
}

// Where the tables say that the caller's frame is, nothing may be read.
CASE(a_stack_that_ends_at_a_guard) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kBytes = 64 * kPage;
  auto* const pages = static_cast<char*>(
      mmap(nullptr, kBytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(mprotect(pages + kBytes, kPage, PROT_NONE) == 0, "no guard");
  asm volatile(
      "mov %%rsp, %%rbx\n\t"
      "mov %0, %%rsp\n\t"
      "call *%1\n\t"
      "mov %%rbx, %%rsp"
      :
      : "r"(pages + kBytes), "r"(&expect_an_end)
      : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

// As a write of zeros past the end of an array leaves it: the caller's frame seems to be at 0.
[[gnu::noinline]] void lose_frame_of_caller() {
  auto** const frame = static_cast<void**>(__builtin_frame_address(0));
  void* const kept = *frame;
  *frame = nullptr;
  hidden(frame);
  expect_an_end();
  *frame = kept;
  hidden(frame);
}

CASE(a_frame_that_was_overwritten_with_zeros) {
  auto* const block = static_cast<char*>(alloca(hidden_size(100)));
  hidden(block);
  lose_frame_of_caller();
  hidden(block);
}

}  // namespace
