#include "secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void refuse(unsigned number, unsigned bits) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  filter_system_calls(steps, sizeof steps / sizeof *steps);
}
// Threads of the program come by clone3.
__attribute__((constructor)) static void refuse_as_wished(void) {
  const char* what = getenv("TEST_REFUSED");
  if (what == NULL) return;
  if (strcmp(what, "watch") == 0) refuse(SYS_userfaultfd, ~0U);
  if (strcmp(what, "thread") == 0) refuse(SYS_clone, CLONE_THREAD);
}

char* volatile global;
volatile bool is_over;
secret secrets[MOST_SECRETS];
size_t secret_count;

__attribute__((noinline)) bool comes_back(secret block, size_t size, int tries) {
  for (int i = 0; i < tries; ++i) {
    void* other = malloc(size);
    const bool same = hide(other) == block;
    free(other);
    if (same) return true;
  }
  return false;
}
// Whether one of the free blocks is this one: these are handed out before the heap grows.
static __attribute__((noinline)) bool is_free(secret block, size_t size) {
  enum { MORE_THAN_WERE_EVER_HELD = 500000 };
  bool found = false;
  void** kept = NULL;
  for (int i = 0; i < MORE_THAN_WERE_EVER_HELD && !found; ++i) {
    void** const other = malloc(size);
    CHECK(other != NULL, "malloc");
    found = hide(other) == block;
    *other = kept;
    kept = other;
  }
  while (kept != NULL) {
    void** const next = *kept;
    free(kept);
    kept = next;
  }
  return found;
}
__attribute__((noinline)) bool is_let_go(secret block, size_t size) {
  return comes_back(block, size, FOR_EVER) || is_free(block, size);
}
__attribute__((noinline)) void clear_stack(void) {
  volatile char old[16384];
  memset((void*)old, 0, sizeof old);
}
__attribute__((noinline)) secret free_one(char* volatile* pointer, size_t size, size_t offset) {
  char* block = obtain(size);
  *pointer = block + offset;
  const secret hidden_block = hide(block);
  free(block);
  return hidden_block;
}
int sweeps_without(const secret* blocks, size_t count, size_t size, int most, const char* where) {
  int sweeps = 0;
  for (int i = 0; i < most; ++i) {
    char* volatile local;
    const secret forgotten = free_one(&local, size, 0);
    local = NULL;
    clear_stack();
    for (int tries = 0; tries < FOR_EVER; ++tries) {
      void* other = malloc(size);
      const secret hidden = hide(other);
      free(other);
      for (size_t k = 0; k < count; ++k) CHECK(hidden != blocks[k], "used again: %s", where);
      if (hidden == forgotten) {
        ++sweeps;
        break;
      }
    }
  }
  return sweeps;
}
void must_keep(secret block, size_t size, const char* where) {
  clear_stack();
  CHECK(sweeps_without(&block, 1, size, SWEEPS, where) > 0, "no sweeps");
}
// What looks like a pointer is taken for one, and now and then something is left in a frame: that
// may happen twice.
void must_let_go(secret block, size_t size, const char* where) {
  static int misses;
  clear_stack();
  CHECK(is_let_go(block, size) || ++misses <= 2, "never used again: %s", where);
}
void must_keep_secrets(const char* where, size_t size) {
  char message[100];
  snprintf(message, sizeof message, "%s of %zu bytes", where, size);
  clear_stack();
  CHECK(sweeps_without(secrets, secret_count, SIZE, SWEEPS, message) > 0, "no sweeps");
  secret_count = 0;
}

void* churn(void* unused) {
  for (int round = 0; round < 3; ++round) {
    char* volatile local;
    const secret block = free_one(&local, SIZE, 0);
    CHECK(!comes_back(block, SIZE, 20000), "used again");
    local = NULL;
  }
  return unused;
}

void read_status(long thread, char* text, size_t size) {
  snprintf(text, size, "/proc/self/task/%ld/status", thread);
  const int file = open(text, O_RDONLY);
  const ssize_t length = read(file, text, size - 1);
  CHECK(length > 0 && close(file) == 0, "status");
  text[length] = '\0';
}

void await_state(long id, char wanted) {
  char state = 0;
  while (state != wanted) {
    char text[4096];
    read_status(id, text, sizeof text);
    const char* const line = strstr(text, "\nState:");
    CHECK(line != NULL && sscanf(line, "\nState: %c", &state) == 1, "State");
  }
}

static void* churn_until_over(void* unused) {
  while (!is_over) churn(NULL);
  return unused;
}

pthread_t begin_to_churn(void) {
  const pthread_t thread = start_thread(churn_until_over, NULL);
  return thread;
}

void end_churning(pthread_t thread) {
  is_over = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}
