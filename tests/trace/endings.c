// Ends, forks or goes on in the way that its argument names, after allocations of known sizes.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int condition) {
  if (!condition) abort();
}

static void allocate(size_t size, int count) {
  for (int i = 0; i < count; ++i) need(malloc(size) != NULL);
}

static int fork_child(void) {
  const pid_t child = fork();
  need(child >= 0);
  return child == 0;
}

static int wait_for_child(void) {
  int status;
  need(wait(&status) > 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// A child that works, one that becomes another program, and one made by vfork.
static int forks(void) {
  allocate(1001, 5);
  void* block = malloc(1001);
  if (fork_child()) {
    free(block);
    allocate(2002, 7);
    _exit(3);
  }
  need(wait_for_child() == 3);
  allocate(1001, 1);
  if (fork_child()) {
    allocate(3003, 2);
    execl("/bin/sh", "sh", "-c", ":", (char*)NULL);
    _exit(1);
  }
  need(wait_for_child() == 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const pid_t child = vfork();
#pragma GCC diagnostic pop
  if (child == 0) _exit(4);
  need(wait_for_child() == 4);
  allocate(1001, 1);
  return 0;
}

// Everything beyond the standard files is closed, and the numbers are used for something else.
static int closes_files(const char* own) {
  allocate(1001, 50000);
  for (int i = 3; i < 1024; ++i) close(i);
  const int file = open(own, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  need(file >= 0);
  for (int i = 500; i < 600; ++i) need(dup2(file, i) == i);
  allocate(1001, 50000);
  need(write(file, "mine", 4) == 4);
  return 0;
}

static void* work(void* unused) {
  allocate(1001, 1);
  return unused;
}

// One thread after the other.
static int threads(void) {
  for (int i = 0; i < 300; ++i) {
    pthread_t id;
    need(pthread_create(&id, NULL, work, NULL) == 0);
    pthread_join(id, NULL);
  }
  return 0;
}

_Noreturn static void* wait_in_vain(void* ready) {
  allocate(2002, 4);
  pthread_barrier_wait(ready);
  for (;;) pause();
}

// The process ends while another thread has events that it never wrote.
static int leaves_thread(void) {
  static pthread_barrier_t ready;
  pthread_barrier_init(&ready, NULL, 2);
  pthread_t id;
  need(pthread_create(&id, NULL, wait_in_vain, &ready) == 0);
  pthread_barrier_wait(&ready);
  return 0;
}

static void allocate_in_handler(int number) {
  (void)number;
  allocate(2002, 1);
}

int main(int argc, char** argv) {
  need(argc > 1);
  const char* way = argv[1];
  if (strcmp(way, "forks") == 0) return forks();
  if (strcmp(way, "closes-files") == 0) return closes_files(argv[2]);
  if (strcmp(way, "threads") == 0) return threads();
  if (strcmp(way, "leaves-thread") == 0) return leaves_thread();
  if (strcmp(way, "many") == 0) {
    allocate(1001, 200000);
    return 5;
  }
  if (strcmp(way, "signals") == 0) {
    signal(SIGUSR1, allocate_in_handler);
    for (int i = 0; i < 10; ++i) raise(SIGUSR1);
    return 0;
  }
  allocate(1001, 3);
  if (strcmp(way, "exit") == 0) exit(6);
  if (strcmp(way, "_exit") == 0) _exit(6);
  if (strcmp(way, "quick_exit") == 0) quick_exit(6);
  if (strcmp(way, "pthread_exit") == 0) pthread_exit(NULL);
  if (strcmp(way, "abort") == 0) abort();
  if (strcmp(way, "kill") == 0) {
    allocate(1001, 30000);
    kill(getpid(), SIGKILL);
  }
  if (strcmp(way, "exec") == 0) execlp("sh", "sh", "-c", "exit 6", (char*)NULL);
  if (strcmp(way, "failed-exec") == 0) {
    need(execl("/nowhere/nothing", "nothing", (char*)NULL) == -1);
    allocate(1001, 2);
    return 6;
  }
  return 1;
}
