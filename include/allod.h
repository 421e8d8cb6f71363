/* Allod's C API: every allocation function under a name of its own, so that it
 * can be used beside another allocator in the same process.
 *
 * Unless said otherwise, functions are thread-safe, sizes are bytes, memory that
 * they return belongs to the caller until it is given to allod_free or one of
 * its relatives, and on failure they return NULL and set errno to ENOMEM.
 * Blocks are aligned to 16, those of up to 8 bytes to 8. When the
 * library also replaces malloc, the two families can be mixed. */
#ifndef ALLOD_H
#define ALLOD_H

#include <stddef.h>
#include <stdint.h>

#define ALLOD_VERSION "0.1.0"

#if defined(__GNUC__)
#define ALLOD_API __attribute__((visibility("default")))
#define ALLOD_RETURNS_BLOCK(...) \
  __attribute__((malloc, alloc_size(__VA_ARGS__), warn_unused_result))
#else
#define ALLOD_API
#define ALLOD_RETURNS_BLOCK(...)
#endif

#ifdef __cplusplus
#define ALLOD_NOTHROW noexcept
extern "C" {
#else
#define ALLOD_NOTHROW
#endif

/* --- the twins of libc's functions ----------------------------------------- */

/* A size of 0 gives a unique block that may be freed. */
ALLOD_API void* allod_malloc(size_t size) ALLOD_NOTHROW ALLOD_RETURNS_BLOCK(1);
/* Zeroed; a product that overflows fails. */
ALLOD_API void* allod_calloc(size_t count, size_t size) ALLOD_NOTHROW ALLOD_RETURNS_BLOCK(1, 2);
/* Keeps the contents up to the smaller size. NULL is allocated; a size of 0
 * frees and returns NULL. When it fails, the old block stays as it is. */
ALLOD_API void* allod_realloc(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_reallocarray(void* block, size_t count, size_t size) ALLOD_NOTHROW;
/* NULL is allowed; errno is kept. */
ALLOD_API void allod_free(void* block) ALLOD_NOTHROW;
ALLOD_API void allod_cfree(void* block) ALLOD_NOTHROW;
/* C23: `size`, and `alignment`, are those of the allocation; checked in the
 * debug library. */
ALLOD_API void allod_free_sized(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void allod_free_aligned_sized(void* block, size_t alignment, size_t size) ALLOD_NOTHROW;

/* `alignment` must be a power of two; EINVAL otherwise. The size need not be a
 * multiple of it. */
ALLOD_API void* allod_aligned_alloc(size_t alignment, size_t size) ALLOD_NOTHROW;
/* Returns 0, EINVAL or ENOMEM and leaves errno alone; `alignment` must also be a
 * multiple of sizeof(void*). `*block` is written only on success. */
ALLOD_API int allod_posix_memalign(void** block, size_t alignment, size_t size) ALLOD_NOTHROW;
/* `alignment` is rounded up to a power of two. */
ALLOD_API void* allod_memalign(size_t alignment, size_t size) ALLOD_NOTHROW;
/* Aligned to a page; pvalloc also rounds the size up to whole pages. */
ALLOD_API void* allod_valloc(size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_pvalloc(size_t size) ALLOD_NOTHROW;

/* What the block really offers, at least what was asked for; 0 for NULL. */
ALLOD_API size_t allod_malloc_usable_size(const void* block) ALLOD_NOTHROW;
/* What a block of `size` would offer. */
ALLOD_API size_t allod_malloc_good_size(size_t size) ALLOD_NOTHROW;

/* Takes the parameters of glibc's mallopt. M_TRIM_THRESHOLD sets the purge
 * budget; the others that glibc knows are accepted without effect. Returns 1, or
 * 0 for a parameter that is unknown. */
ALLOD_API int allod_mallopt(int parameter, int value) ALLOD_NOTHROW;
/* Gives all free memory that can be found back to the system; `pad` is ignored.
 * Returns 1 if there was any. */
ALLOD_API int allod_malloc_trim(size_t pad) ALLOD_NOTHROW;

/* --- the twins of operator new and delete ----------------------------------- */

/* On failure the new-handler is called until it gives up; then the _new family
 * throws std::bad_alloc, or ends a program that has no C++ runtime, and the
 * _nothrow family returns NULL. */
ALLOD_API void* allod_new(size_t size);
ALLOD_API void* allod_new_aligned(size_t size, size_t alignment);
ALLOD_API void* allod_new_nothrow(size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_new_aligned_nothrow(size_t size, size_t alignment) ALLOD_NOTHROW;
ALLOD_API void allod_delete(void* block) ALLOD_NOTHROW;
ALLOD_API void allod_delete_sized(void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void allod_delete_aligned(void* block, size_t alignment) ALLOD_NOTHROW;
ALLOD_API void allod_delete_sized_aligned(void* block, size_t size, size_t alignment) ALLOD_NOTHROW;

/* --- statistics and options --------------------------------------------------- */

/* Receives text in pieces, not terminated by a zero. It must not call into Allod's
 * statistics again. */
typedef void (*allod_write_t)(const char* text, size_t length, void* context);

/* Writes statistics for people, or as one JSON object. Exact while no other
 * thread allocates or frees, close otherwise. */
ALLOD_API void allod_stats_text(allod_write_t write, void* context) ALLOD_NOTHROW;
ALLOD_API void allod_stats_json(allod_write_t write, void* context) ALLOD_NOTHROW;

/* The most useful figures, in bytes and counts. */
typedef struct allod_stats {
  size_t live;          /* in blocks that the program holds, as rounded */
  size_t live_blocks;   /* how many */
  size_t cached;        /* in free blocks that threads keep at hand */
  size_t free_in_slabs; /* in other free blocks of slabs in use */
  size_t dirty;         /* free, memory still held */
  size_t clean;         /* free, memory given back */
  size_t reserved;      /* address space held for all of these */
  size_t metadata;      /* mapped for bookkeeping */
  size_t huge;          /* of `live`: in blocks above the largest size class */
  size_t huge_blocks;
  uint64_t purges;       /* steps of giving memory back */
  uint64_t purged;       /* bytes given back so far */
  uint64_t remote_frees; /* blocks freed by another thread than their slab's */
  uint64_t contended;    /* how often a thread had to wait for a lock */
} allod_stats_t;

/* `size` is sizeof(allod_stats_t) of the caller. Returns 0, or EINVAL. */
ALLOD_API int allod_stats_get(allod_stats_t* stats, size_t size) ALLOD_NOTHROW;

/* Sets an option by its name, with or without "ALLOD_". Returns 0, ENOENT (no such
 * option), EINVAL (bad value) or EPERM (counts only at start). */
ALLOD_API int allod_option_set(const char* name, const char* value) ALLOD_NOTHROW;
/* Writes the list of options, as text or as a Markdown table. */
ALLOD_API void allod_options_text(allod_write_t write, void* context) ALLOD_NOTHROW;
ALLOD_API void allod_options_markdown(allod_write_t write, void* context) ALLOD_NOTHROW;

/* --- first-class heaps -------------------------------------------------------- */

/* A heap of its own: its blocks lie apart from all others, can be counted and
 * limited, and can be given back together. Every thread may allocate in every heap.
 * A block may be freed by any thread, with allod_heap_free or with allod_free (and
 * free, where the library replaces it).
 *
 * While a heap is deleted or destroyed, and afterwards, no thread may use it. */
typedef struct allod_heap allod_heap_t;

/* Called when a request for `size` bytes does not fit the heap's limit, by the thread
 * that asks. It may free blocks, or raise the limit; with a result other than 0, the
 * request is tried again. */
typedef int (*allod_heap_limit_t)(allod_heap_t* heap, size_t size, void* context);

/* What a heap's memory is made of. */
enum allod_pages {
  ALLOD_PAGES_USUAL = 0,
  /* Huge pages where the system has some to spare, small ones elsewhere. */
  ALLOD_PAGES_LARGE = 1,
  /* Huge pages that were set aside for programs (vm.nr_hugepages). */
  ALLOD_PAGES_2M = 2,
  ALLOD_PAGES_1G = 3
};

/* When a heap's free memory goes back to the system. */
enum allod_purge {
  ALLOD_PURGE_AS_PROCESS = 0, /* after the delay, and above the budget, of the process */
  ALLOD_PURGE_AT_ONCE = 1,
  ALLOD_PURGE_NEVER = 2,
  ALLOD_PURGE_AFTER_DELAY = 3 /* of `purge_delay_ms`; there is no budget */
};

/* Set everything to zero first, then `struct_size` to sizeof(allod_heap_options_t). */
typedef struct allod_heap_options {
  size_t struct_size;
  /* Shown in statistics, UTF-8; the first 47 bytes are copied. NULL: none. */
  const char* name;
  /* Most bytes in blocks at the same time, as rounded to their size classes; 0: no limit.
   * Memory is held in slabs of 64 KiB and more, so that a heap holds more than that. */
  size_t byte_limit;
  allod_heap_limit_t on_limit;
  void* on_limit_context;
  /* Memory of the program, which the heap never exceeds: readable and writable, at any
   * address, from 65,536 bytes on, shared memory too; not memory of Allod. It must stay until
   * the heap is gone, and comes back as it then is: what is not in a block in use is never
   * read or written. NULL: memory of the system. */
  void* memory;
  size_t memory_bytes;
  /* Of memory of the system. With anything but zeros the heap has regions of its own, of
   * which it holds one from the start; making it fails when the system does not give that. */
  unsigned pages; /* enum allod_pages */
  unsigned purge; /* enum allod_purge; AT_ONCE and AFTER_DELAY go with USUAL and LARGE, and not
                   * with `locked` */
  int locked;     /* not 0: kept in memory, as by mlock */
  /* One bit for each NUMA node that the memory may come from, node 0 the lowest; 0: any. */
  uint64_t nodes;
  /* Not 0: blocks in use are reported, as by allod_heap_report_leaks, when the heap is
   * destroyed and when the process ends. */
  int report_leaks;
  /* Not 0: for tools that live in the process and watch it. What the heap holds is in no
   * statistics but its own. */
  int unseen;
  /* Not 0: misuse of the heap's blocks is found out, as the hardened library does it for all;
   * see docs/security.md. Not with `memory`. */
  int hardened;
  /* With ALLOD_PURGE_AFTER_DELAY alone: how long memory is free before it goes, whatever the
   * process does with its own. 0 is as good as AT_ONCE when slow paths come by. */
  unsigned purge_delay_ms;
} allod_heap_options_t;

/* An empty heap, without limit. */
ALLOD_API allod_heap_t* allod_heap_new(void) ALLOD_NOTHROW;
/* NULL as options: like allod_heap_new. On failure errno is
 * EINVAL: options that are none, or do not go together; no such NUMA node
 * EBUSY: the memory belongs to another heap, or to Allod
 * ENOMEM: no such pages, or no memory; more than may be locked (EPERM: none may)
 * ENOSYS: the system knows no NUMA nodes. */
ALLOD_API allod_heap_t* allod_heap_new_ex(const allod_heap_options_t* options) ALLOD_NOTHROW;
/* Gives the heap up. Its blocks stay valid, belong to the process from then on, and can
 * be freed with allod_free. NULL is allowed. Returns 0; or EBUSY, and the heap stays as it
 * is, when it has memory, pages, nodes or a purge policy of its own and blocks in use. */
ALLOD_API int allod_heap_delete(allod_heap_t* heap) ALLOD_NOTHROW;
/* Gives up the heap and all of its blocks, in time proportional to the slabs and huge
 * blocks it holds. NULL is allowed. */
ALLOD_API void allod_heap_destroy(allod_heap_t* heap) ALLOD_NOTHROW;

/* Like their twins without _heap_, in this heap. They fail when the heap is at its
 * limit, too. */
ALLOD_API void* allod_heap_malloc(allod_heap_t* heap, size_t size) ALLOD_NOTHROW
    ALLOD_RETURNS_BLOCK(2);
ALLOD_API void* allod_heap_calloc(allod_heap_t* heap, size_t count, size_t size) ALLOD_NOTHROW
    ALLOD_RETURNS_BLOCK(2, 3);
/* The result is in this heap, even when the block was in another. (allod_realloc and
 * realloc leave a block in its heap.) A block that has to move needs room for both under
 * the limit. */
ALLOD_API void* allod_heap_realloc(allod_heap_t* heap, void* block, size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_heap_reallocarray(allod_heap_t* heap, void* block, size_t count,
                                        size_t size) ALLOD_NOTHROW;
ALLOD_API void* allod_heap_aligned_alloc(allod_heap_t* heap, size_t alignment,
                                         size_t size) ALLOD_NOTHROW;
/* A copy of a text, or of at most `most` bytes of it and a zero. */
ALLOD_API char* allod_heap_strdup(allod_heap_t* heap, const char* text) ALLOD_NOTHROW;
ALLOD_API char* allod_heap_strndup(allod_heap_t* heap, const char* text, size_t most) ALLOD_NOTHROW;
/* A block of this heap, or NULL. A block that is not this heap's is reported. It waits
 * while another thread uses the heap; allod_free does not. */
ALLOD_API void allod_heap_free(allod_heap_t* heap, void* block) ALLOD_NOTHROW;
ALLOD_API void allod_heap_free_sized(allod_heap_t* heap, void* block, size_t size) ALLOD_NOTHROW;

/* Is `block` the start of a block in use of this heap? Any address is allowed. */
ALLOD_API int allod_heap_contains(allod_heap_t* heap, const void* block) ALLOD_NOTHROW;
/* Calls `visit` with every block in use and the bytes it offers, in no order, until it
 * returns something else than 0. It may use the heap, and may free the block. A block
 * that comes or goes meanwhile may be missed, or be told although it is gone.
 * Returns what `visit` returned last, or -1 when there is no memory. */
typedef int (*allod_heap_visit_t)(void* block, size_t bytes, void* context);
ALLOD_API int allod_heap_walk(allod_heap_t* heap, allod_heap_visit_t visit,
                              void* context) ALLOD_NOTHROW;
/* Writes the blocks in use to standard error, the first twenty one by one; the debug library
 * tells who allocated them. Returns how many there are. */
ALLOD_API size_t allod_heap_report_leaks(allod_heap_t* heap) ALLOD_NOTHROW;
/* Gives up slabs of the heap that hold no block; returns their bytes. */
ALLOD_API size_t allod_heap_collect(allod_heap_t* heap) ALLOD_NOTHROW;
/* Changes the limit; 0: none. Blocks beyond it stay. */
ALLOD_API void allod_heap_set_limit(allod_heap_t* heap, size_t bytes) ALLOD_NOTHROW;
/* The name, perhaps cut; valid as long as the heap is. */
ALLOD_API const char* allod_heap_name(const allod_heap_t* heap) ALLOD_NOTHROW;

/* Figures of one heap, in bytes and counts. */
typedef struct allod_heap_stats {
  size_t live;        /* in blocks in use, as rounded */
  size_t live_blocks; /* how many */
  size_t peak_live;
  size_t held; /* in slabs and huge blocks */
  size_t slabs;
  size_t huge_blocks;
  size_t limit;     /* 0: none */
  uint64_t refused; /* requests that failed, or were tried again after on_limit */
} allod_heap_stats_t;

/* `size` is sizeof(allod_heap_stats_t) of the caller. Returns 0, or EINVAL. */
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
/* Writes the heaps in use to `rows`, as far as there is room for; unseen ones are left out.
 * `size` is sizeof(allod_heap_row_t) of the caller. Returns how many there are, 0 for a wrong
 * size. */
ALLOD_API size_t allod_heaps_get(allod_heap_row_t* rows, size_t room, size_t size) ALLOD_NOTHROW;

/* --- the map of memory ----------------------------------------------------------- */

/* What a run of memory is. */
enum {
  ALLOD_SPAN_SLAB = 0,  /* blocks of one size class */
  ALLOD_SPAN_HUGE = 1,  /* one block above the largest class */
  ALLOD_SPAN_DIRTY = 2, /* free, memory still held */
  ALLOD_SPAN_CLEAN = 3, /* free, memory given back */
  ALLOD_SPAN_OWN = 4    /* bookkeeping, and unseen heaps */
};

typedef struct allod_span {
  uintptr_t address;
  size_t bytes;
  uint32_t kind;
  uint32_t owner;       /* the id of a domain or a heap; 0: nobody's */
  uint32_t block_bytes; /* of a slab, as the following two */
  uint32_t blocks;
  uint32_t free; /* of them; those that threads keep at hand count as used */
} allod_span_t;

/* Writes all spans to `spans`, as far as there is room for. `size` is sizeof(allod_span_t)
 * of the caller. Returns how many there are, 0 for a wrong size. No thread can take or give
 * back whole spans meanwhile: about 20 ns for each. */
ALLOD_API size_t allod_spans_get(allod_span_t* spans, size_t room, size_t size) ALLOD_NOTHROW;

/* --- the heap profile ----------------------------------------------------------- */

/* While it is on, allocations are sampled at random: on the average one for every
 * `interval` bytes, so that large blocks are more likely than small ones. Each sample
 * stands for as many allocations as make the estimates right on the average. When the
 * interval is 1, every allocation is a sample, and nothing is estimated.
 *
 * Off, it costs nothing. What was sampled is known until it is freed, also when the
 * profile is off meanwhile. The child of a fork goes on with what its parent knew. */

/* Starts, or changes the interval. 0: 512 KiB. Other threads take part when they have
 * used up what they have at hand. Returns 0, or ENOMEM. */
ALLOD_API int allod_profile_start(size_t interval) ALLOD_NOTHROW;
ALLOD_API void allod_profile_stop(void) ALLOD_NOTHROW;
/* The interval, or 0 when the profile is off. */
ALLOD_API size_t allod_profile_interval(void) ALLOD_NOTHROW;
/* Totals and peaks begin anew; what is live stays known. */
ALLOD_API void allod_profile_reset(void) ALLOD_NOTHROW;

typedef struct allod_profile_sum {
  uint64_t blocks;
  uint64_t bytes;     /* as rounded to size classes */
  uint64_t requested; /* as asked for */
} allod_profile_sum_t;

/* What is known of the allocations with one call stack. */
typedef struct allod_profile_stack {
  uint64_t id;               /* the same for as long as the process lives */
  const uintptr_t* frames;   /* return addresses, innermost first; those of Allod are left out */
  size_t depth;              /* how many */
  allod_profile_sum_t live;  /* in use now */
  allod_profile_sum_t peak;  /* in use when the most bytes were */
  allod_profile_sum_t total; /* ever, since the start or the reset */
  uint64_t live_samples;     /* what `live` rests on */
  uint64_t total_samples;    /* and `total` */
  uint64_t freed_samples;    /* of them, that are gone */
  uint64_t mean_age_ms;      /* of live samples */
  uint64_t mean_lifetime_ms; /* of freed samples */
} allod_profile_stack_t;

/* Calls `visit` for each stack until it returns something else than 0, which is then
 * returned; 0 otherwise. No lock is held meanwhile, so that it may allocate. What it is
 * given is valid during the call. The same holds for all functions of this kind. */
typedef int (*allod_profile_stack_visit_t)(const allod_profile_stack_t* stack, void* context);
ALLOD_API int allod_profile_visit_stacks(allod_profile_stack_visit_t visit,
                                         void* context) ALLOD_NOTHROW;

/* A sample in use: what stands for it is `count_x256` / 256 blocks of its kind. */
typedef struct allod_profile_block {
  const void* address;
  size_t bytes;
  size_t requested;
  uint64_t stack; /* its id */
  uint64_t count_x256;
  uint64_t age_ms;
  uint32_t thread; /* the system's id of the thread that allocated it */
} allod_profile_block_t;
typedef int (*allod_profile_block_visit_t)(const allod_profile_block_t* block, void* context);
ALLOD_API int allod_profile_visit_blocks(allod_profile_block_visit_t visit,
                                         void* context) ALLOD_NOTHROW;

/* Exact counts of one size class, on one thread, or on what threads share. Those of the
 * first four hold at any time; the others count while the profile is on. */
typedef struct allod_profile_class {
  uint32_t thread;        /* the system's id; 0: shared by threads, or of threads that ended */
  uint32_t domain;        /* the same number for all classes of a thread */
  size_t size;            /* bytes of a block; 0: blocks above the largest class */
  uint64_t slabs;         /* that the thread owns */
  uint64_t used_blocks;   /* in its slabs, whoever allocated them */
  uint64_t cached_blocks; /* free, in its hands */
  uint64_t allocated_blocks;
  uint64_t freed_blocks;
} allod_profile_class_t;
typedef int (*allod_profile_class_visit_t)(const allod_profile_class_t* row, void* context);
ALLOD_API int allod_profile_visit_classes(allod_profile_class_visit_t visit,
                                          void* context) ALLOD_NOTHROW;

/* Samples that were freed, by the power of two of the milliseconds that they lived: [0]
 * less than 1 ms, [1] less than 2, [2] less than 4, and so on. */
#define ALLOD_PROFILE_LIFETIMES 32
typedef struct allod_profile_summary {
  size_t interval; /* 0: off */
  allod_profile_sum_t live;
  allod_profile_sum_t peak;
  allod_profile_sum_t total;
  uint64_t stacks;
  uint64_t live_samples;
  uint64_t total_samples;
  uint64_t lost_samples; /* for want of memory */
  uint64_t since_ms;     /* since the start or the reset */
  uint64_t peak_age_ms;  /* since the peak */
  allod_profile_sum_t lifetimes[ALLOD_PROFILE_LIFETIMES];
} allod_profile_summary_t;
/* `size` is sizeof(allod_profile_summary_t) of the caller. Returns 0, or EINVAL. */
ALLOD_API int allod_profile_summary_get(allod_profile_summary_t* summary,
                                        size_t size) ALLOD_NOTHROW;
/* Writes the profile as a text that pprof reads, with the mappings of the process. See
 * docs/profiling.md. */
ALLOD_API void allod_profile_write(allod_write_t write, void* context) ALLOD_NOTHROW;

/* --- leaks ---------------------------------------------------------------------- */

/* A block leaks when nothing leads to it any more: no global, no stack, no register, no
 * thread-local variable, and no block that is reached from these. What looks like an address
 * is taken for one. Only blocks that the profile has sampled are looked for; with
 * ALLOD_LEAKS=1, those are all. */

/* From now on, only blocks that are allocated later count as leaks. */
ALLOD_API void allod_leaks_begin(void) ALLOD_NOTHROW;
/* Looks for leaks. All other threads are stopped meanwhile, by a signal: system calls of
 * theirs that cannot be restarted end with EINTR. Not within an allocation, nor in a signal
 * handler. Returns how many blocks leak, or -1 for want of memory; writes them to the file
 * that ALLOD_LEAKS_FILE names, as the profile is written, or to standard error. */
ALLOD_API long allod_leaks_check(void) ALLOD_NOTHROW;

/* --- which block an address lies in ----------------------------------------------- */

/* Finds the block in use that holds `address`, which may be any address, and need not be the start
 * of a block. Writes where the block starts, and how many bytes of it the program may use: those
 * that it asked for in the debug and the hardened library, what allod_malloc_usable_size tells in
 * the default one. The address may lie behind these bytes, where the block was rounded up.
 * Either pointer may be NULL. Returns 1; or 0, and writes nothing, when no block in use of Allod is
 * there. The default library counts a freed block as in use while a thread has it at hand for its
 * next allocation; the others do not.
 *
 * Takes no lock, never faults, keeps errno, and may be called in a signal handler. Of a block that
 * another thread frees, or resizes, meanwhile it may tell what was. Of a block of up to 4 MiB in a
 * heap made with `hardened`, the end is copied by a system call, process_vm_readv, unless the
 * library is the hardened one. Where the system refuses that call, the block itself is read: then
 * nobody may free it, or destroy the heap, meanwhile. */
ALLOD_API int allod_bounds(const void* address, void** start, size_t* size) ALLOD_NOTHROW;

/* For functions that copy: how many of the `bytes` bytes from `address` on are the program's to
 * use. All of them where no block is known at the address; otherwise those up to the end of the
 * block, and none of a block that the library knows to be free, as the debug and the hardened one
 * do at once. Between blocks, where one may be later, not more than up to the next. Otherwise as
 * allod_bounds. */
ALLOD_API size_t allod_room(const void* address, size_t bytes) ALLOD_NOTHROW;
/* Reports that `function` was to read, or with `writes` to write, `bytes` bytes from `address` on,
 * which have no room there; then ends the process, unless ALLOD_ABORT_ON_ERROR is 0. Without a
 * function (NULL) it tells of "?". Not to be called in a signal handler. */
ALLOD_API void allod_report_copy(const void* address, size_t bytes, int writes,
                                 const char* function) ALLOD_NOTHROW;

/* --- for language runtimes ------------------------------------------------------ */

/* Called from slow paths of allocation, on the thread that allocates, so that a runtime
 * can free a bounded number of objects at a time that it has put off. `heartbeat` grows
 * by one with every call on a thread. `force` is not 0 within allod_collect(1): free
 * everything that can be. The function may allocate and free; it is not called again
 * from within itself. */
typedef void (*allod_deferred_free_t)(int force, uint64_t heartbeat, void* context);
/* One for the process; NULL ends it. A call of the old one may still be under way. */
ALLOD_API void allod_register_deferred_free(allod_deferred_free_t function,
                                            void* context) ALLOD_NOTHROW;
/* Puts what the calling thread has at hand, and what others have freed for it, where
 * every thread can use it. With `force`, also gives all free memory back to the system. */
ALLOD_API void allod_collect(int force) ALLOD_NOTHROW;

/* The version as "major.minor.patch". */
ALLOD_API const char* allod_version(void) ALLOD_NOTHROW;
/* Walks everything and ends the process with a report if it is inconsistent. In the debug
 * library also reports writes past the end and after free that it finds. Only while no other
 * thread uses the heap. */
ALLOD_API void allod_check(void) ALLOD_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif
