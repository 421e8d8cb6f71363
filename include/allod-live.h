/* The live page for programs that link it, and reports of their own allocators to it.
 *
 * liballod-live.so has these functions. It needs one of Allod's shared libraries in the same
 * process. See docs/live.md. */
#ifndef ALLOD_LIVE_H
#define ALLOD_LIVE_H

#include "allod.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the server. `address` is a numeric address of this machine; NULL means 127.0.0.1. Port 0
 * means any free one. Returns 0, EALREADY if it runs, an error such as EADDRINUSE, or ENOTSUP if
 * the process does not use Allod. */
ALLOD_API int allod_live_start(const char* address, uint16_t port) ALLOD_NOTHROW;
/* Ends the server, and waits for its thread. */
ALLOD_API void allod_live_stop(void) ALLOD_NOTHROW;
/* The URL of the page, with its token; NULL if the server does not run. Valid until
 * allod_live_stop(). */
ALLOD_API const char* allod_live_link(void) ALLOD_NOTHROW;
/* Sets a mark on the timeline. Labels are cut to 63 bytes. */
ALLOD_API void allod_live_mark(const char* label) ALLOD_NOTHROW;

/* For a program's own allocators, such as pools, arenas and caches: the page shows their blocks
 * beside the heap. A second report of an address changes its size. Thread-safe; about 50 ns. */
ALLOD_API void allod_live_report_alloc(const void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void allod_live_report_free(const void* block) ALLOD_NOTHROW;

#ifdef __cplusplus
}

namespace allod::live {

/* See the functions of C. */
inline int start(const char* address, uint16_t port) noexcept {
  return allod_live_start(address, port);
}
inline void stop() noexcept { allod_live_stop(); }
inline const char* link() noexcept { return allod_live_link(); }
inline void mark(const char* label) noexcept { allod_live_mark(label); }

}  // namespace allod::live
#endif

#endif
