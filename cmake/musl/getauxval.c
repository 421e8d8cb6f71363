// What Debian's libgcc.a for arm64 asks glibc for, to find out which atomic instructions there are.
// Newer releases of musl have it. Linked into each library and program for musl on arm64.
#include <sys/auxv.h>

__attribute__((visibility("hidden"))) unsigned long __getauxval(unsigned long type) {
  return getauxval(type);
}
