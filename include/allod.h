/* Allod's C API: every allocation function under its own name, so that it can be used beside
 * another allocator in the same process.
 *
 * Unless stated otherwise: Functions are thread-safe. Sizes are bytes. Returned blocks belong to
 * the caller until they are freed by allod_free or a relative. On failure, functions return NULL
 * and set errno to ENOMEM. Blocks are aligned to 16, or to 8 if they have up to 8 bytes. If the
 * library also replaces malloc, the two families can be mixed. */
#ifndef ALLOD_H
#define ALLOD_H

#include <stddef.h>
#include <stdint.h>

#define ALLOD_VERSION "0.1.0"

#if defined(__ELF__) || defined(__MACH__)
#define ALLOD_API __attribute__((visibility("default")))
#else
#define ALLOD_API
#endif
#if defined(__GNUC__)
#define ALLOD_RETURNS_BLOCK(...) \
  __attribute__((malloc, alloc_size(__VA_ARGS__), warn_unused_result))
#else
#define ALLOD_RETURNS_BLOCK(...)
#endif

#ifdef __cplusplus
#define ALLOD_NOTHROW noexcept
extern "C" {
#else
#define ALLOD_NOTHROW
#endif

/* --- libc's functions ------------------------------------------------------ */

/* A size of 0 returns a unique block, which must be freed like any other. */
ALLOD_API void* allod_malloc(size_t size) ALLOD_NOTHROW ALLOD_RETURNS_BLOCK(1);
/* Returns zeroed memory. Fails if the product overflows. */
ALLOD_API void* allod_calloc(size_t count, size_t size) ALLOD_NOTHROW ALLOD_RETURNS_BLOCK(1, 2);
/* Keeps the contents up to the smaller size. Allocates if `block` is NULL. A size of 0 frees the
 * block and returns NULL. On failure, the old block is unchanged. */
ALLOD_API void* allod_realloc(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_reallocarray(void* block, size_t count, size_t size) ALLOD_NOTHROW;
/* Accepts NULL. Keeps errno. */
ALLOD_API void allod_free(void* block) ALLOD_NOTHROW;
ALLOD_API void allod_cfree(void* block) ALLOD_NOTHROW;
/* C23. `size` and `alignment` must be those of the allocation. The debug and hardened libraries
 * check the size. */
ALLOD_API void allod_free_sized(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void allod_free_aligned_sized(void* block, size_t alignment, size_t size) ALLOD_NOTHROW;

/* `alignment` must be a power of two, else EINVAL. `size` need not be a multiple of it. */
ALLOD_API void* allod_aligned_alloc(size_t alignment, size_t size) ALLOD_NOTHROW;
/* Returns 0, EINVAL or ENOMEM, and keeps errno. `alignment` must also be a multiple of
 * sizeof(void*). Writes `*block` only on success. */
ALLOD_API int allod_posix_memalign(void** block, size_t alignment, size_t size) ALLOD_NOTHROW;
/* Rounds `alignment` up to a power of two. */
ALLOD_API void* allod_memalign(size_t alignment, size_t size) ALLOD_NOTHROW;
/* Aligned to a page. pvalloc also rounds `size` up to whole pages. */
ALLOD_API void* allod_valloc(size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_pvalloc(size_t size) ALLOD_NOTHROW;

/* Usable bytes of a block, at least the requested size; 0 for NULL. */
ALLOD_API size_t allod_malloc_usable_size(const void* block) ALLOD_NOTHROW;
/* Usable bytes of a block that would be requested with `size`. */
ALLOD_API size_t allod_malloc_good_size(size_t size) ALLOD_NOTHROW;

/* Like glibc's mallopt. M_TRIM_THRESHOLD sets the purge budget; glibc's other parameters have no
 * effect. Returns 1, or 0 for an unknown parameter. */
ALLOD_API int allod_mallopt(int parameter, int value) ALLOD_NOTHROW;
/* Returns all free memory to the system. Ignores `pad`. Returns 1 if there was any, else 0. */
ALLOD_API int allod_malloc_trim(size_t pad) ALLOD_NOTHROW;

/* --- operators new and delete ----------------------------------------------- */

/* On failure, the new-handler is called until none is set. Then the _nothrow functions return NULL,
 * and the others throw std::bad_alloc, or abort the program if it has no C++ runtime. */
ALLOD_API void* allod_new(size_t size);
ALLOD_API void* allod_new_aligned(size_t size, size_t alignment);
ALLOD_API void* allod_new_nothrow(size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_new_aligned_nothrow(size_t size, size_t alignment) ALLOD_NOTHROW;
ALLOD_API void allod_delete(void* block) ALLOD_NOTHROW;
ALLOD_API void allod_delete_sized(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void allod_delete_aligned(void* block, size_t alignment) ALLOD_NOTHROW;
ALLOD_API void allod_delete_sized_aligned(void* block, size_t size, size_t alignment) ALLOD_NOTHROW;

/* --- statistics and options --------------------------------------------------- */

/* Receives text in pieces, without a terminating zero. Must not call Allod's statistics. */
typedef void (*allod_write_t)(const char* text, size_t length, void* context);

/* Write statistics for people, or as one JSON object. Exact while no other thread allocates or
 * frees, else approximate. */
ALLOD_API void allod_stats_text(allod_write_t write, void* context) ALLOD_NOTHROW;
ALLOD_API void allod_stats_json(allod_write_t write, void* context) ALLOD_NOTHROW;

/* Main figures, in bytes and counts. */
typedef struct allod_stats {
  size_t live;          /* in blocks in use, with rounding */
  size_t live_blocks;   /* in use */
  size_t cached;        /* in free blocks of magazines */
  size_t free_in_slabs; /* in other free blocks of slabs in use */
  size_t dirty;         /* free, still in memory */
  size_t clean;         /* free, returned to the system */
  size_t reserved;      /* address space of all these */
  size_t metadata;      /* mapped for bookkeeping */
  size_t huge;          /* part of `live`: blocks above the largest size class */
  size_t huge_blocks;
  uint64_t purges;       /* number of purges */
  uint64_t purged;       /* bytes purged so far */
  uint64_t moves;        /* number of moves of pages from free memory to a new block */
  uint64_t moved;        /* bytes moved so far */
  uint64_t remote_frees; /* blocks freed by a thread that does not own their slab */
  uint64_t contended;    /* times that a thread waited for a lock */
} allod_stats_t;

/* `size` must be sizeof(allod_stats_t). Returns 0 or EINVAL. */
ALLOD_API int allod_stats_get(allod_stats_t* stats, size_t size) ALLOD_NOTHROW;

/* Sets an option; `name` with or without "ALLOD_". Returns 0, ENOENT (unknown option), EINVAL
 * (invalid value) or EPERM (only effective at start). */
ALLOD_API int allod_option_set(const char* name, const char* value) ALLOD_NOTHROW;
/* Write the list of options, as text or as a Markdown table. */
ALLOD_API void allod_options_text(allod_write_t write, void* context) ALLOD_NOTHROW;
ALLOD_API void allod_options_markdown(allod_write_t write, void* context) ALLOD_NOTHROW;

/* --- first-class heaps -------------------------------------------------------- */

/* A first-class heap. Its blocks are separate from all others, and can be counted, limited and
 * freed together. Any thread may allocate in any heap. Any thread may free a block, by
 * allod_heap_free, by allod_free, or by free if the library replaces it.
 *
 * No thread may use a heap during or after its deletion or destruction. */
typedef struct allod_heap allod_heap_t;

/* Called on the requesting thread when `size` bytes would exceed the heap's limit. It may free
 * blocks or raise the limit. If it returns non-zero, the request is tried again. */
typedef int (*allod_heap_limit_t)(allod_heap_t* heap, size_t size, void* context);

/* Pages of a heap's memory. */
enum allod_pages {
  ALLOD_PAGES_USUAL = 0,
  /* Transparent huge pages where available, small pages elsewhere. */
  ALLOD_PAGES_LARGE = 1,
  /* Reserved huge pages (vm.nr_hugepages). */
  ALLOD_PAGES_2M = 2,
  ALLOD_PAGES_1G = 3
};

/* When a heap's free memory returns to the system. */
enum allod_purge {
  ALLOD_PURGE_AS_PROCESS = 0, /* by the delay and budget of the process */
  ALLOD_PURGE_AT_ONCE = 1,
  ALLOD_PURGE_NEVER = 2,
  ALLOD_PURGE_AFTER_DELAY = 3 /* after `purge_delay_ms`, without a budget */
};

/* Set all to zero first, then `struct_size` to sizeof(allod_heap_options_t). */
typedef struct allod_heap_options {
  size_t struct_size;
  /* Shown in statistics; UTF-8. The first 47 bytes are copied. NULL: no name. */
  const char* name;
  /* Limit of bytes in blocks in use, with rounding to size classes; 0: none. The heap holds more
   * memory than that, since slabs have 64 KiB and more. */
  size_t byte_limit;
  allod_heap_limit_t on_limit;
  void* on_limit_context;
  /* The program's memory, beyond which the heap never grows. At least 65,536 bytes at any address,
   * readable and writable; may be shared, must not be Allod's. It must exist until the heap is
   * gone, and keeps its contents then. The heap never reads or writes bytes outside blocks in use.
   * NULL: memory of the system. */
  void* memory;
  size_t memory_bytes;
  /* For memory of the system. Unless all are zero, the heap has its own regions and reserves one at
   * once; creation fails if the system refuses it. */
  unsigned pages; /* enum allod_pages */
  unsigned purge; /* enum allod_purge; AT_ONCE and AFTER_DELAY require USUAL or LARGE, and exclude
                   * `locked` */
  int locked;     /* non-zero: locked, as by mlock */
  /* Permitted NUMA nodes, one bit each, node 0 the lowest; 0: any. */
  uint64_t nodes;
  /* Non-zero: reports blocks in use, like allod_heap_report_leaks, when the heap is destroyed and
   * when the process ends. */
  int report_leaks;
  /* Non-zero: excludes the heap from all statistics but its own. For tools that watch their own
   * process. */
  int unseen;
  /* Non-zero: detects misuse of the heap's blocks, as the hardened library does for all; see
   * docs/security.md. Not with `memory`. */
  int hardened;
  /* For ALLOD_PURGE_AFTER_DELAY only: how long memory stays free before it is purged, in
   * milliseconds. 0: at the next slow path. */
  unsigned purge_delay_ms;
} allod_heap_options_t;

/* An empty heap without a limit. */
ALLOD_API allod_heap_t* allod_heap_new(void) ALLOD_NOTHROW;
/* NULL options: like allod_heap_new. On failure, errno is
 * - EINVAL: unknown or contradictory options, or no such NUMA node
 * - EBUSY: `memory` belongs to another heap or to Allod
 * - ENOMEM: no such pages, no memory, or the limit of locked memory exceeded
 * - EPERM: no memory may be locked
 * - ENOSYS: the system has no NUMA support. */
ALLOD_API allod_heap_t* allod_heap_new_ex(const allod_heap_options_t* options) ALLOD_NOTHROW;
/* Deletes the heap. Its blocks stay valid, belong to the process, and can be freed by allod_free.
 * Accepts NULL. Returns 0. Returns EBUSY, and does nothing, if the heap has blocks in use and
 * memory, pages, nodes or a purge policy of its own. */
ALLOD_API int allod_heap_delete(allod_heap_t* heap) ALLOD_NOTHROW;
/* Destroys the heap and frees all its blocks, in time proportional to its slabs and huge blocks.
 * Accepts NULL. */
ALLOD_API void allod_heap_destroy(allod_heap_t* heap) ALLOD_NOTHROW;

/* Like the functions without _heap_, in this heap. They also fail at the heap's limit. */
ALLOD_API void* allod_heap_malloc(allod_heap_t* heap, size_t size) ALLOD_NOTHROW
    ALLOD_RETURNS_BLOCK(2);
ALLOD_API void* allod_heap_calloc(allod_heap_t* heap, size_t count, size_t size) ALLOD_NOTHROW
    ALLOD_RETURNS_BLOCK(2, 3);
/* The result is in this heap, even if the block was in another, unlike allod_realloc and realloc,
 * which keep a block in its heap. If the block must move, both blocks count towards the limit. */
ALLOD_API void* allod_heap_realloc(allod_heap_t* heap, void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_heap_reallocarray(allod_heap_t* heap, void* block, size_t count,
                                        size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_heap_aligned_alloc(allod_heap_t* heap, size_t alignment,
                                         size_t size) ALLOD_NOTHROW;
/* Copies a string, or at most `most` bytes of it, and a terminating zero. */
ALLOD_API char* allod_heap_strdup(allod_heap_t* heap, const char* text) ALLOD_NOTHROW;
ALLOD_API char* allod_heap_strndup(allod_heap_t* heap, const char* text, size_t most) ALLOD_NOTHROW;
/* Frees a block of this heap, or NULL; reports a block of another heap. Waits while another thread
 * uses the heap, unlike allod_free. */
ALLOD_API void allod_heap_free(allod_heap_t* heap, void* block) ALLOD_NOTHROW;
ALLOD_API void allod_heap_free_sized(allod_heap_t* heap, void* block, size_t size) ALLOD_NOTHROW;

/* Whether `block` is the start of a block in use of this heap. Accepts any address. */
ALLOD_API int allod_heap_contains(allod_heap_t* heap, const void* block) ALLOD_NOTHROW;
/* Calls `visit` with each block in use and its usable bytes, in any order, until it returns
 * non-zero. `visit` may use the heap and free the block. Blocks allocated or freed meanwhile may be
 * missed, or be visited after their free. Returns the last result of `visit`, or -1 if memory is
 * exhausted. */
typedef int (*allod_heap_visit_t)(void* block, size_t bytes, void* context);
ALLOD_API int allod_heap_walk(allod_heap_t* heap, allod_heap_visit_t visit,
                              void* context) ALLOD_NOTHROW;
/* Writes the blocks in use to standard error, the first twenty one by one; the debug library adds
 * who allocated them. Returns their number. */
ALLOD_API size_t allod_heap_report_leaks(allod_heap_t* heap) ALLOD_NOTHROW;
/* Frees slabs of the heap without blocks; returns their bytes. */
ALLOD_API size_t allod_heap_collect(allod_heap_t* heap) ALLOD_NOTHROW;
/* Sets the limit; 0: none. Blocks beyond it stay valid. */
ALLOD_API void allod_heap_set_limit(allod_heap_t* heap, size_t bytes) ALLOD_NOTHROW;
/* The name, perhaps truncated. Valid as long as the heap. */
ALLOD_API const char* allod_heap_name(const allod_heap_t* heap) ALLOD_NOTHROW;

/* Figures of one heap, in bytes and counts. */
typedef struct allod_heap_stats {
  size_t live;        /* in blocks in use, with rounding */
  size_t live_blocks; /* in use */
  size_t peak_live;
  size_t held; /* in slabs and huge blocks */
  size_t slabs;
  size_t huge_blocks;
  size_t limit;     /* 0: none */
  uint64_t refused; /* requests over the limit, also those that succeeded after on_limit */
} allod_heap_stats_t;

/* `size` must be sizeof(allod_heap_stats_t). Returns 0 or EINVAL. */
ALLOD_API int allod_heap_stats_get(allod_heap_t* heap, allod_heap_stats_t* stats,
                                   size_t size) ALLOD_NOTHROW;
/* The same and the name, as one JSON object. */
ALLOD_API void allod_heap_stats_json(allod_heap_t* heap, allod_write_t write,
                                     void* context) ALLOD_NOTHROW;

/* One heap in use. */
typedef struct allod_heap_row {
  char name[48];
  uint32_t id;
  allod_heap_stats_t figures;
} allod_heap_row_t;
/* Writes the heaps in use to `rows`, up to `room`, except unseen ones. `size` must be
 * sizeof(allod_heap_row_t). Returns their number, or 0 for a wrong size. */
ALLOD_API size_t allod_heaps_get(allod_heap_row_t* rows, size_t room, size_t size) ALLOD_NOTHROW;

/* --- the map of memory ----------------------------------------------------------- */

/* Kinds of memory. */
enum {
  ALLOD_SPAN_SLAB = 0,  /* blocks of one size class */
  ALLOD_SPAN_HUGE = 1,  /* one block above the largest class */
  ALLOD_SPAN_DIRTY = 2, /* free, still in memory */
  ALLOD_SPAN_CLEAN = 3, /* free, returned to the system */
  ALLOD_SPAN_OWN = 4    /* bookkeeping, and unseen heaps */
};

typedef struct allod_span {
  uintptr_t address;
  size_t bytes;
  uint32_t kind;
  uint32_t owner;       /* id of a domain or heap; 0: none */
  uint32_t block_bytes; /* of a slab, like the next two */
  uint32_t blocks;
  uint32_t free; /* of these; blocks in magazines count as used */
} allod_span_t;

/* Writes all spans to `spans`, up to `room`. `size` must be sizeof(allod_span_t). Returns their
 * number, or 0 for a wrong size. Blocks allocation and release of whole spans meanwhile, for about
 * 20 ns per span. */
ALLOD_API size_t allod_spans_get(allod_span_t* spans, size_t room, size_t size) ALLOD_NOTHROW;

/* Memory by node (NUMA), in bytes. A span belongs to the node of the thread that first asked for
 * its memory, and its pages mostly lie there: the system places a page when a thread first touches
 * it. Without heaps that have memory of their own. */
typedef struct allod_node {
  uint32_t node; /* its id; nodes from 16 on count as lower ones */
  size_t used;   /* in slabs and huge blocks */
  size_t dirty;  /* free, still in memory */
  size_t clean;  /* free, returned to the system */
} allod_node_t;

/* Writes the nodes that Allod keeps apart to `nodes`, up to `room`. `size` must be
 * sizeof(allod_node_t). Returns their number, 1 if it keeps none apart, or 0 for a wrong size.
 * Blocks as allod_spans_get() does. */
ALLOD_API size_t allod_nodes_get(allod_node_t* nodes, size_t room, size_t size) ALLOD_NOTHROW;

/* --- the heap profile ----------------------------------------------------------- */

/* While the profile is on, allocations are sampled at random, on average one per `interval` bytes,
 * so large blocks are more likely samples. Each sample is weighted so that estimates are right on
 * average. With interval 1 every allocation is a sample, and the counts are exact.
 *
 * The profile costs nothing while it is off. Samples stay known until they are freed, even while it
 * is off. A child of fork inherits them. */

/* Starts the profile, or changes its interval; 0: 512 KiB. Other threads join once their magazines
 * are empty. Returns 0 or ENOMEM. */
ALLOD_API int allod_profile_start(size_t interval) ALLOD_NOTHROW;
ALLOD_API void allod_profile_stop(void) ALLOD_NOTHROW;
/* The interval; 0 while the profile is off. */
ALLOD_API size_t allod_profile_interval(void) ALLOD_NOTHROW;
/* Resets totals and peaks, but not what is live. */
ALLOD_API void allod_profile_reset(void) ALLOD_NOTHROW;

typedef struct allod_profile_sum {
  uint64_t blocks;
  uint64_t bytes;     /* with rounding to size classes */
  uint64_t requested; /* as requested */
} allod_profile_sum_t;

/* Allocations with one call stack. */
typedef struct allod_profile_stack {
  uint64_t id;               /* constant while the process lives */
  const uintptr_t* frames;   /* return addresses, innermost first, without those of Allod; some may
                                be functions of an interpreter: allod_profile_function_get() */
  size_t depth;              /* number of frames */
  allod_profile_sum_t live;  /* in use now */
  allod_profile_sum_t peak;  /* in use at the peak of bytes in use */
  allod_profile_sum_t total; /* since the start or the last reset */
  uint64_t live_samples;     /* samples behind `live` */
  uint64_t total_samples;    /* samples behind `total` */
  uint64_t freed_samples;    /* of these, freed */
  uint64_t mean_age_ms;      /* of live samples */
  uint64_t mean_lifetime_ms; /* of freed samples */
} allod_profile_stack_t;

/* Calls `visit` for each stack until it returns non-zero. Returns its last result. `visit` may
 * allocate, since no lock is held. Its argument is valid during the call only. The same holds for
 * the other visit functions. */
typedef int (*allod_profile_stack_visit_t)(const allod_profile_stack_t* stack, void* context);
ALLOD_API int allod_profile_visit_stacks(allod_profile_stack_visit_t visit,
                                         void* context) ALLOD_NOTHROW;

/* A sample in use. It represents `count_x256` / 256 blocks. */
typedef struct allod_profile_block {
  const void* address;
  size_t bytes;
  size_t requested;
  uint64_t stack; /* id of its stack */
  uint64_t count_x256;
  uint64_t age_ms;
  uint32_t thread; /* kernel id of the allocating thread */
  /* An address in the slab of a block of the same class that the thread allocated or freed just
   * before; perhaps freed since. Samples have slabs of their own: those of neighbours are the slabs
   * that samples stand for. Null if it is not known. */
  const void* neighbour;
} allod_profile_block_t;
typedef int (*allod_profile_block_visit_t)(const allod_profile_block_t* block, void* context);
ALLOD_API int allod_profile_visit_blocks(allod_profile_block_visit_t visit,
                                         void* context) ALLOD_NOTHROW;

/* Exact counts of one size class, by thread or shared domain. The first four counts are always
 * valid; the others count while the profile is on. */
typedef struct allod_profile_class {
  uint32_t thread;        /* kernel id; 0: shared, or of ended threads */
  uint32_t domain;        /* the same for all classes of a thread */
  size_t size;            /* of a block in bytes; 0: blocks above the largest class */
  uint64_t slabs;         /* owned by the thread */
  uint64_t used_blocks;   /* in these slabs, allocated by any thread */
  uint64_t cached_blocks; /* free, in the thread's magazines */
  uint64_t allocated_blocks;
  uint64_t freed_blocks;
} allod_profile_class_t;
typedef int (*allod_profile_class_visit_t)(const allod_profile_class_t* row, void* context);
ALLOD_API int allod_profile_visit_classes(allod_profile_class_visit_t visit,
                                          void* context) ALLOD_NOTHROW;

/* Freed samples by lifetime: [0] less than 1 ms, [1] less than 2 ms, [2] less than 4 ms, and so on.
 */
#define ALLOD_PROFILE_LIFETIMES 32
typedef struct allod_profile_summary {
  size_t interval; /* 0: off */
  allod_profile_sum_t live;
  allod_profile_sum_t peak;
  allod_profile_sum_t total;
  uint64_t stacks;
  uint64_t live_samples;
  uint64_t total_samples;
  uint64_t lost_samples; /* lost because memory was exhausted */
  uint64_t since_ms;     /* since the start or the last reset */
  uint64_t peak_age_ms;  /* since the peak */
  allod_profile_sum_t lifetimes[ALLOD_PROFILE_LIFETIMES];
} allod_profile_summary_t;
/* `size` must be sizeof(allod_profile_summary_t). Returns 0 or EINVAL. */
ALLOD_API int allod_profile_summary_get(allod_profile_summary_t* summary,
                                        size_t size) ALLOD_NOTHROW;
/* A Python function that a call stack passes through. The texts are UTF-8, and never freed. */
typedef struct allod_profile_function {
  const char* name;
  const char* file;
  unsigned line; /* of the call, or of what allocates; 0: not known */
} allod_profile_function_t;
/* Describes a frame of a stack that is no return address. `size` must be
 * sizeof(allod_profile_function_t). Returns 0; ENOENT if the frame is an address; or EINVAL.
 * Thread-safe, without a lock. */
ALLOD_API int allod_profile_function_get(uintptr_t frame, allod_profile_function_t* function,
                                         size_t size) ALLOD_NOTHROW;
/* Writes the profile as text for pprof, with the mappings of the process. See docs/profiling.md. */
ALLOD_API void allod_profile_write(allod_write_t write, void* context) ALLOD_NOTHROW;

/* --- leaks ---------------------------------------------------------------------- */

/* A block leaks if no pointer leads to it from globals, stacks, registers or thread-local
 * variables, directly or through other reachable blocks. The search is conservative: any word that
 * looks like an address counts as a pointer. It covers only blocks that the profile has sampled,
 * which are all blocks with ALLOD_LEAKS=1. */

/* Blocks allocated before this call do not count as leaks. */
ALLOD_API void allod_leaks_begin(void) ALLOD_NOTHROW;
/* Searches for leaks. A signal stops all other threads meanwhile, so their system calls that cannot
 * be restarted fail with EINTR. Must not be called within an allocation or in a signal handler.
 * Returns the number of leaking blocks, or -1 if memory is exhausted or the threads cannot be
 * stopped. Writes them to the file that ALLOD_LEAKS_FILE names, in the profile's format, or to
 * standard error. */
ALLOD_API long allod_leaks_check(void) ALLOD_NOTHROW;

/* Writes what the options ask for at the end of the process: leaks, the profile, statistics. For a
 * handler of a signal that ends the process. Returns 0, or EAGAIN if the interrupted code holds the
 * heap or the profile: then return from the handler, and try again a moment later. */
ALLOD_API int allod_reports_write(void) ALLOD_NOTHROW;

/* --- bounds of blocks ------------------------------------------------------------- */

/* Finds the block in use that contains `address`, which may be any address. Writes the block's
 * start, and its usable bytes: the requested size in the debug and hardened libraries,
 * allod_malloc_usable_size in the default one. The address may lie behind these bytes if the block
 * was rounded up. Either pointer may be NULL. Returns 1; or 0, and writes nothing, if no block in
 * use contains it. In the default library, a freed block in a thread's magazine still counts as in
 * use.
 *
 * Lock-free and async-signal-safe; never faults; keeps errno. If another thread frees or resizes
 * the block meanwhile, the result may be outdated. For blocks of up to 4 MiB in a heap created with
 * `hardened`, it reads the end of the block by process_vm_readv, except in the hardened library. If
 * the system refuses that call, it reads the block directly: then no thread may free the block or
 * destroy the heap meanwhile. */
ALLOD_API int allod_bounds(const void* address, void** start, size_t* size) ALLOD_NOTHROW;

/* For functions that copy: how many of the `bytes` bytes from `address` on may be accessed. All of
 * them if no block is known there; otherwise those up to the block's end. None in a block known to
 * be free; the debug and hardened libraries know it at once. Between blocks of a slab, only those
 * up to the next. Otherwise like allod_bounds. */
ALLOD_API size_t allod_room(const void* address, size_t bytes) ALLOD_NOTHROW;
/* Reports that `function` would read, or write if `writes` is non-zero, `bytes` bytes from
 * `address` on, beyond their block. Then aborts, unless ALLOD_ABORT_ON_ERROR is 0. `function` may
 * be NULL. Must not be called in a signal handler. */
ALLOD_API void allod_report_copy(const void* address, size_t bytes, int writes,
                                 const char* function) ALLOD_NOTHROW;

/* --- for language runtimes ------------------------------------------------------ */

/* Lets a runtime free objects that it has deferred, a bounded number at a time. Called from slow
 * paths, on the allocating thread. `heartbeat` grows by one with each call on a thread. `force` is
 * non-zero within allod_collect(1): free all that is possible. The function may allocate and free;
 * it is not called recursively. */
typedef void (*allod_deferred_free_t)(int force, uint64_t heartbeat, void* context);
/* One function per process; NULL removes it. A call of the old one may still be running. */
ALLOD_API void allod_register_deferred_free(allod_deferred_free_t function,
                                            void* context) ALLOD_NOTHROW;
/* Makes free blocks in the calling thread's magazines, and those freed for it by others, available
 * to all threads. With `force`, also returns all free memory to the system. */
ALLOD_API void allod_collect(int force) ALLOD_NOTHROW;

/* The version as "major.minor.patch". */
ALLOD_API const char* allod_version(void) ALLOD_NOTHROW;
/* Checks all structures, and aborts with a report if they are inconsistent. The debug library also
 * reports writes past the end and after free. No other thread may use the heap meanwhile. */
ALLOD_API void allod_check(void) ALLOD_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif
