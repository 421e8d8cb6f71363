/* Preloaded before the library under test: each program image that starts
 * appends one line to the file named by WITNESS_JOURNAL,
 *
 *     pid TAB executable TAB object that provides malloc TAB mapped
 *
 * where `mapped` says whether the object named by WITNESS_LIBRARY is in the
 * address space. The variables travel with LD_PRELOAD, so that the testimony is
 * that of the program under test and not of a script that started it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_library(struct dl_phdr_info* object, size_t size, void* path) {
  (void)size;
  return strcmp(object->dlpi_name, path) == 0;
}

/* The name of the object that answers calls to malloc, which is empty for the
 * executable itself, or NULL. */
static const char* malloc_provider(void) {
  Dl_info info;
  ElfW(Sym)* symbol = NULL;
  struct link_map* object = NULL;
  void* address = dlsym(RTLD_DEFAULT, "malloc");

  /* An executable that is not position independent and takes malloc's address
   * answers with a stub of its own, which stays marked as undefined; then the
   * next object in the search order is the one. */
  if (dladdr1(address, &info, (void**)&symbol, RTLD_DL_SYMENT) && symbol &&
      symbol->st_shndx == SHN_UNDEF) {
    address = dlsym(RTLD_NEXT, "malloc");
  }
  if (!dladdr1(address, &info, (void**)&object, RTLD_DL_LINKMAP) || !object) {
    return NULL;
  }
  return object->l_name;
}

__attribute__((constructor)) static void testify(void) {
  const int saved_errno = errno;
  const char* journal = getenv("WITNESS_JOURNAL");
  char* library = getenv("WITNESS_LIBRARY");
  const char* provider = malloc_provider();
  char executable[PATH_MAX];
  char line[3 * PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);

  if (journal && library && provider && length > 0) {
    executable[length] = '\0';
    const int written =
        snprintf(line, sizeof line, "%ld\t%s\t%s\t%d\n", (long)getpid(), executable,
                 *provider ? provider : executable, dl_iterate_phdr(is_library, library));
    const int file = open(journal, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file >= 0) {
      /* A lost line makes the test fail, so a failed write needs no report. */
      if (write(file, line, (size_t)written) < 0) {
      }
      close(file);
    }
  }
  errno = saved_errno;
}
