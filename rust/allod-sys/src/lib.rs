//! The functions of Allod's C header, `allod.h`, for Rust. The crate [`allod`](https://docs.rs/allod)
//! has what programs use; this one compiles the library and declares it.
//!
//! The header says what each function does, and which are thread-safe: all of them, unless stated
//! otherwise. The functions that throw C++ exceptions, `allod_new` and `allod_new_aligned`, are left out.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_long, c_uint, c_void};

/// Receives text in pieces, without a terminating zero.
pub type allod_write_t =
    unsafe extern "C" fn(text: *const c_char, length: usize, context: *mut c_void);

// libc's functions.
extern "C" {
    pub fn allod_malloc(size: usize) -> *mut c_void;
    pub fn allod_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn allod_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn allod_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn allod_free(block: *mut c_void);
    pub fn allod_cfree(block: *mut c_void);
    pub fn allod_free_sized(block: *mut c_void, size: usize);
    pub fn allod_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize);
    pub fn allod_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn allod_posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub fn allod_memalign(alignment: usize, size: usize) -> *mut c_void;
    pub fn allod_valloc(size: usize) -> *mut c_void;
    pub fn allod_pvalloc(size: usize) -> *mut c_void;
    pub fn allod_malloc_usable_size(block: *const c_void) -> usize;
    pub fn allod_malloc_good_size(size: usize) -> usize;
    pub fn allod_mallopt(parameter: c_int, value: c_int) -> c_int;
    pub fn allod_malloc_trim(pad: usize) -> c_int;
}

// Operators new and delete.
extern "C" {
    pub fn allod_new_nothrow(size: usize) -> *mut c_void;
    pub fn allod_new_aligned_nothrow(size: usize, alignment: usize) -> *mut c_void;
    pub fn allod_delete(block: *mut c_void);
    pub fn allod_delete_sized(block: *mut c_void, size: usize);
    pub fn allod_delete_aligned(block: *mut c_void, alignment: usize);
    pub fn allod_delete_sized_aligned(block: *mut c_void, size: usize, alignment: usize);
}

/// Main figures, in bytes and counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_stats_t {
    /// In blocks in use, with rounding.
    pub live: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// In free blocks of magazines.
    pub cached: usize,
    /// In other free blocks of slabs in use.
    pub free_in_slabs: usize,
    /// Free, still in memory.
    pub dirty: usize,
    /// Free, returned to the system.
    pub clean: usize,
    /// Address space of all these.
    pub reserved: usize,
    /// Mapped for bookkeeping.
    pub metadata: usize,
    /// Part of `live`: blocks above the largest size class.
    pub huge: usize,
    /// Number of these blocks.
    pub huge_blocks: usize,
    /// Number of purges.
    pub purges: u64,
    /// Bytes purged so far.
    pub purged: u64,
    /// Number of moves of pages from free memory to a new block.
    pub moves: u64,
    /// Bytes moved so far.
    pub moved: u64,
    /// Blocks freed by a thread that does not own their slab.
    pub remote_frees: u64,
    /// Times that a thread waited for a lock.
    pub contended: u64,
}

// Statistics and options.
extern "C" {
    pub fn allod_stats_text(write: allod_write_t, context: *mut c_void);
    pub fn allod_stats_json(write: allod_write_t, context: *mut c_void);
    pub fn allod_stats_get(stats: *mut allod_stats_t, size: usize) -> c_int;
    pub fn allod_option_set(name: *const c_char, value: *const c_char) -> c_int;
    pub fn allod_options_text(write: allod_write_t, context: *mut c_void);
    pub fn allod_options_markdown(write: allod_write_t, context: *mut c_void);
}

/// A first-class heap.
#[repr(C)]
pub struct allod_heap_t {
    _opaque: [u8; 0],
    // Neither sent nor shared nor moved by accident: threads are the owner's matter.
    _marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Called when `size` bytes would exceed the heap's limit; a result other than 0: try again.
pub type allod_heap_limit_t =
    unsafe extern "C" fn(heap: *mut allod_heap_t, size: usize, context: *mut c_void) -> c_int;

pub const ALLOD_PAGES_USUAL: c_uint = 0;
pub const ALLOD_PAGES_LARGE: c_uint = 1;
pub const ALLOD_PAGES_2M: c_uint = 2;
pub const ALLOD_PAGES_1G: c_uint = 3;

pub const ALLOD_PURGE_AS_PROCESS: c_uint = 0;
pub const ALLOD_PURGE_AT_ONCE: c_uint = 1;
pub const ALLOD_PURGE_NEVER: c_uint = 2;
pub const ALLOD_PURGE_AFTER_DELAY: c_uint = 3;

/// Options of a heap; the header describes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allod_heap_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub byte_limit: usize,
    pub on_limit: Option<allod_heap_limit_t>,
    pub on_limit_context: *mut c_void,
    pub memory: *mut c_void,
    pub memory_bytes: usize,
    pub pages: c_uint,
    pub purge: c_uint,
    pub locked: c_int,
    pub nodes: u64,
    pub report_leaks: c_int,
    pub unseen: c_int,
    pub hardened: c_int,
    pub purge_delay_ms: c_uint,
}

impl Default for allod_heap_options_t {
    fn default() -> Self {
        allod_heap_options_t {
            struct_size: std::mem::size_of::<Self>(),
            name: std::ptr::null(),
            byte_limit: 0,
            on_limit: None,
            on_limit_context: std::ptr::null_mut(),
            memory: std::ptr::null_mut(),
            memory_bytes: 0,
            pages: ALLOD_PAGES_USUAL,
            purge: ALLOD_PURGE_AS_PROCESS,
            locked: 0,
            nodes: 0,
            report_leaks: 0,
            unseen: 0,
            hardened: 0,
            purge_delay_ms: 0,
        }
    }
}

/// Figures of one heap, in bytes and counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_heap_stats_t {
    /// In blocks in use, with rounding.
    pub live: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// The most that `live` was.
    pub peak_live: usize,
    /// In slabs and huge blocks.
    pub held: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Blocks above the largest size class.
    pub huge_blocks: usize,
    /// Limit of `live`; 0: none.
    pub limit: usize,
    /// Requests over the limit.
    pub refused: u64,
}

/// One heap in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allod_heap_row_t {
    pub name: [c_char; 48],
    pub id: u32,
    pub figures: allod_heap_stats_t,
}

pub type allod_heap_visit_t =
    unsafe extern "C" fn(block: *mut c_void, bytes: usize, context: *mut c_void) -> c_int;

// First-class heaps.
extern "C" {
    pub fn allod_heap_new() -> *mut allod_heap_t;
    pub fn allod_heap_new_ex(options: *const allod_heap_options_t) -> *mut allod_heap_t;
    pub fn allod_heap_delete(heap: *mut allod_heap_t) -> c_int;
    pub fn allod_heap_destroy(heap: *mut allod_heap_t);
    pub fn allod_heap_malloc(heap: *mut allod_heap_t, size: usize) -> *mut c_void;
    pub fn allod_heap_calloc(heap: *mut allod_heap_t, count: usize, size: usize) -> *mut c_void;
    pub fn allod_heap_realloc(
        heap: *mut allod_heap_t,
        block: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn allod_heap_reallocarray(
        heap: *mut allod_heap_t,
        block: *mut c_void,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn allod_heap_aligned_alloc(
        heap: *mut allod_heap_t,
        alignment: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn allod_heap_strdup(heap: *mut allod_heap_t, text: *const c_char) -> *mut c_char;
    pub fn allod_heap_strndup(
        heap: *mut allod_heap_t,
        text: *const c_char,
        most: usize,
    ) -> *mut c_char;
    pub fn allod_heap_free(heap: *mut allod_heap_t, block: *mut c_void);
    pub fn allod_heap_free_sized(heap: *mut allod_heap_t, block: *mut c_void, size: usize);
    pub fn allod_heap_contains(heap: *mut allod_heap_t, block: *const c_void) -> c_int;
    pub fn allod_heap_walk(
        heap: *mut allod_heap_t,
        visit: allod_heap_visit_t,
        context: *mut c_void,
    ) -> c_int;
    pub fn allod_heap_report_leaks(heap: *mut allod_heap_t) -> usize;
    pub fn allod_heap_collect(heap: *mut allod_heap_t) -> usize;
    pub fn allod_heap_set_limit(heap: *mut allod_heap_t, bytes: usize);
    pub fn allod_heap_name(heap: *const allod_heap_t) -> *const c_char;
    pub fn allod_heap_stats_get(
        heap: *mut allod_heap_t,
        stats: *mut allod_heap_stats_t,
        size: usize,
    ) -> c_int;
    pub fn allod_heap_stats_json(
        heap: *mut allod_heap_t,
        write: allod_write_t,
        context: *mut c_void,
    );
    pub fn allod_heaps_get(rows: *mut allod_heap_row_t, room: usize, size: usize) -> usize;
}

pub const ALLOD_SPAN_SLAB: u32 = 0;
pub const ALLOD_SPAN_HUGE: u32 = 1;
pub const ALLOD_SPAN_DIRTY: u32 = 2;
pub const ALLOD_SPAN_CLEAN: u32 = 3;
pub const ALLOD_SPAN_OWN: u32 = 4;

/// A span of the map of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_span_t {
    pub address: usize,
    pub bytes: usize,
    pub kind: u32,
    pub owner: u32,
    pub block_bytes: u32,
    pub blocks: u32,
    pub free: u32,
}

// The map of memory.
extern "C" {
    pub fn allod_spans_get(spans: *mut allod_span_t, room: usize, size: usize) -> usize;
}

/// Memory of a node (NUMA), in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_node_t {
    pub node: u32,
    pub used: usize,
    pub dirty: usize,
    pub clean: usize,
}

extern "C" {
    pub fn allod_nodes_get(nodes: *mut allod_node_t, room: usize, size: usize) -> usize;
}

/// A Python function that a call stack passes through.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allod_profile_function_t {
    pub name: *const c_char,
    pub file: *const c_char,
    pub line: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_profile_sum_t {
    pub blocks: u64,
    pub bytes: u64,
    pub requested: u64,
}

/// Allocations with one call stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allod_profile_stack_t {
    pub id: u64,
    pub frames: *const usize,
    pub depth: usize,
    pub live: allod_profile_sum_t,
    pub peak: allod_profile_sum_t,
    pub total: allod_profile_sum_t,
    pub live_samples: u64,
    pub total_samples: u64,
    pub freed_samples: u64,
    pub mean_age_ms: u64,
    pub mean_lifetime_ms: u64,
}

pub type allod_profile_stack_visit_t =
    unsafe extern "C" fn(stack: *const allod_profile_stack_t, context: *mut c_void) -> c_int;

/// A sample in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct allod_profile_block_t {
    pub address: *const c_void,
    pub bytes: usize,
    pub requested: usize,
    pub stack: u64,
    pub count_x256: u64,
    pub age_ms: u64,
    pub thread: u32,
    pub neighbour: *const c_void,
}

pub type allod_profile_block_visit_t =
    unsafe extern "C" fn(block: *const allod_profile_block_t, context: *mut c_void) -> c_int;

/// Exact counts of one size class, by thread or shared domain.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_profile_class_t {
    pub thread: u32,
    pub domain: u32,
    pub size: usize,
    pub slabs: u64,
    pub used_blocks: u64,
    pub cached_blocks: u64,
    pub allocated_blocks: u64,
    pub freed_blocks: u64,
}

pub type allod_profile_class_visit_t =
    unsafe extern "C" fn(row: *const allod_profile_class_t, context: *mut c_void) -> c_int;

pub const ALLOD_PROFILE_LIFETIMES: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allod_profile_summary_t {
    pub interval: usize,
    pub live: allod_profile_sum_t,
    pub peak: allod_profile_sum_t,
    pub total: allod_profile_sum_t,
    pub stacks: u64,
    pub live_samples: u64,
    pub total_samples: u64,
    pub lost_samples: u64,
    pub since_ms: u64,
    pub peak_age_ms: u64,
    pub lifetimes: [allod_profile_sum_t; ALLOD_PROFILE_LIFETIMES],
}

// The heap profile, leaks, and bounds of blocks.
extern "C" {
    pub fn allod_profile_start(interval: usize) -> c_int;
    pub fn allod_profile_stop();
    pub fn allod_profile_interval() -> usize;
    pub fn allod_profile_reset();
    pub fn allod_profile_visit_stacks(
        visit: allod_profile_stack_visit_t,
        context: *mut c_void,
    ) -> c_int;
    pub fn allod_profile_visit_blocks(
        visit: allod_profile_block_visit_t,
        context: *mut c_void,
    ) -> c_int;
    pub fn allod_profile_visit_classes(
        visit: allod_profile_class_visit_t,
        context: *mut c_void,
    ) -> c_int;
    pub fn allod_profile_summary_get(summary: *mut allod_profile_summary_t, size: usize) -> c_int;
    pub fn allod_profile_function_get(
        frame: usize,
        function: *mut allod_profile_function_t,
        size: usize,
    ) -> c_int;
    pub fn allod_profile_write(write: allod_write_t, context: *mut c_void);
    pub fn allod_leaks_begin();
    pub fn allod_leaks_check() -> c_long;
    pub fn allod_reports_write() -> c_int;
    pub fn allod_bounds(address: *const c_void, start: *mut *mut c_void, size: *mut usize)
        -> c_int;
    pub fn allod_room(address: *const c_void, bytes: usize) -> usize;
    pub fn allod_report_copy(
        address: *const c_void,
        bytes: usize,
        writes: c_int,
        function: *const c_char,
    );
}

pub type allod_deferred_free_t =
    unsafe extern "C" fn(force: c_int, heartbeat: u64, context: *mut c_void);

// For language runtimes.
extern "C" {
    pub fn allod_register_deferred_free(
        function: Option<allod_deferred_free_t>,
        context: *mut c_void,
    );
    pub fn allod_collect(force: c_int);
    pub fn allod_version() -> *const c_char;
    pub fn allod_check();
}
