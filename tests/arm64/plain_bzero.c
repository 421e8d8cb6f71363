// qemu 7.2 faults when `dc zva` gets a pointer with a tag. glibc's bzero always uses that
// instruction; of its functions for memset, a tunable chooses one that does without.
#include <string.h>
#include <strings.h>

void bzero(void* block, size_t bytes) { memset(block, 0, bytes); }
