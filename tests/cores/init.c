// The first program of an emulated machine: runs the commands of a file, one after the other, says
// how each ended, and turns the machine off. A line of the file is an environment variable, if it
// has a '=' before any blank, or else a program with arguments.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMost = 64 };
static char* variables[kMost + 1];
static int variable_count;

static void set(const char* text) {
  const char* const value = strchr(text, '=');
  const size_t name = (size_t)(value - text) + 1;
  int i = 0;
  while (i < variable_count && strncmp(variables[i], text, name) != 0) ++i;
  if (i == kMost) return;
  variables[i] = strdup(text);
  if (i == variable_count) ++variable_count;
}

static void run(char* line) {
  char* arguments[kMost + 1] = {0};
  int count = 0;
  char* rest = NULL;
  for (char* word = strtok_r(line, " ", &rest); word != NULL && count < kMost;
       word = strtok_r(NULL, " ", &rest)) {
    arguments[count++] = word;
  }
  const pid_t child = fork();
  if (child == 0) {
    execve(arguments[0], arguments, variables);
    perror(arguments[0]);
    _exit(127);
  }
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  printf("ended: %d\n", status);
  fflush(stdout);
}

int main(void) {
  mkdir("/proc", 0755);
  mount("proc", "/proc", "proc", 0, NULL);
  mkdir("/sys", 0755);
  mount("sysfs", "/sys", "sysfs", 0, NULL);
  FILE* const commands = fopen("/commands", "r");
  char line[4096];
  while (commands != NULL && fgets(line, sizeof line, commands) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    const size_t name = strcspn(line, "= ");
    if (line[name] == '=') {
      set(line);
    } else if (line[0] != '\0') {
      run(line);
    }
  }
  reboot(RB_POWER_OFF);
  return 0;
}
