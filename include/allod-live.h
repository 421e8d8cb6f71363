/* The live page in a program that links it, and blocks of allocators of its own.
 *
 * The functions are those of liballod-live.so, which needs one of Allod's shared libraries in
 * the same process. See docs/live.md. */
#ifndef ALLOD_LIVE_H
#define ALLOD_LIVE_H

#include "allod.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the server. `address` is a number of this machine, NULL for 127.0.0.1; port 0 is any
 * free one. Returns 0, EALREADY when it runs, EADDRINUSE and the like, or ENOTSUP when there is
 * no Allod in the process. */
ALLOD_API int allod_live_start(const char* address, uint16_t port) ALLOD_NOTHROW;
/* Waits for its thread to end. */
ALLOD_API void allod_live_stop(void) ALLOD_NOTHROW;
/* The link of the page, with its token; NULL when it is not served. Valid until the stop. */
ALLOD_API const char* allod_live_link(void) ALLOD_NOTHROW;
/* Sets a mark on the timeline; the first 63 bytes count. */
ALLOD_API void allod_live_mark(const char* label) ALLOD_NOTHROW;

/* For allocators that a program has itself: a pool, an arena, a cache. What they hand out and
 * take back is shown beside the heap. An address that is reported again has a new size. Any
 * thread may call; about 50 ns each. */
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
