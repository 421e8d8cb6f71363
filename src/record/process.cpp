// Ends of a process that skip exit handlers: _exit, exec.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record/writer.hpp"

#define ALLOD_EXPORT extern "C" [[gnu::visibility("default")]]

using allod::record::Recorder;

namespace {

template <class... Arguments>
int become(const char* name, Arguments... arguments) noexcept {
  using Function = int(Arguments...);
  const auto function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  if (function == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  Recorder::before_exec();
  return function(arguments...);
}

std::size_t count_of(const char* first, va_list& others) noexcept {
  std::size_t count = 0;
  for (const char* each = first; each != nullptr; each = va_arg(others, char*)) ++count;
  return count;
}

void collect(char** argv, const char* first, va_list& others) noexcept {
  for (const char* each = first; each != nullptr; each = va_arg(others, char*)) {
    *argv++ = const_cast<char*>(each);
  }
  *argv = nullptr;
}

}  // namespace

ALLOD_EXPORT void _exit(int status) {
  Recorder::end();
  for (;;) allod::raw_syscall(SYS_exit_group, status);
}
ALLOD_EXPORT void _Exit(int status) noexcept { _exit(status); }

// For liballod-ends.so. The recorder blocks signals where it holds something.
ALLOD_EXPORT void liballod_record_end() noexcept { Recorder::end(); }

ALLOD_EXPORT int execve(const char* path, char* const* argv, char* const* environment) noexcept {
  return become("execve", path, argv, environment);
}
ALLOD_EXPORT int fexecve(int file, char* const* argv, char* const* environment) noexcept {
  return become("fexecve", file, argv, environment);
}
ALLOD_EXPORT int execv(const char* path, char* const* argv) noexcept {
  return become("execv", path, argv);
}
ALLOD_EXPORT int execvp(const char* file, char* const* argv) noexcept {
  return become("execvp", file, argv);
}
ALLOD_EXPORT int execvpe(const char* file, char* const* argv, char* const* environment) noexcept {
  return become("execvpe", file, argv, environment);
}

// The variants with an argument list. The array lives on the stack until exec.
#define ALLOD_ARGUMENT_LIST(argv, first)                                                       \
  va_list arguments;                                                                           \
  va_start(arguments, first);                                                                  \
  auto** const argv =                                                                          \
      static_cast<char**>(__builtin_alloca((count_of(first, arguments) + 1) * sizeof(char*))); \
  va_end(arguments);                                                                           \
  va_start(arguments, first);                                                                  \
  collect(argv, first, arguments)

ALLOD_EXPORT int execl(const char* path, const char* argument, ...) noexcept {
  ALLOD_ARGUMENT_LIST(argv, argument);
  va_end(arguments);
  return execv(path, argv);
}
ALLOD_EXPORT int execlp(const char* file, const char* argument, ...) noexcept {
  ALLOD_ARGUMENT_LIST(argv, argument);
  va_end(arguments);
  return execvp(file, argv);
}
ALLOD_EXPORT int execle(const char* path, const char* argument, ...) noexcept {
  ALLOD_ARGUMENT_LIST(argv, argument);
  char* const* const environment = va_arg(arguments, char* const*);
  va_end(arguments);
  return execve(path, argv, environment);
}
