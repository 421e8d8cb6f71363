#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod blocks;
mod heap;
#[cfg(feature = "profiling")]
pub mod profile;
#[cfg(feature = "stats")]
pub mod stats;
#[cfg(any(feature = "stats", feature = "profiling"))]
mod text;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, CString};
use std::io;
use std::os::raw::{c_int, c_void};

pub use heap::{Heap, HeapBuilder, HeapStats, Pages, Purge};

use blocks::Blocks;

/// The global allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOD: allod::Allod = allod::Allod;
/// ```
///
/// Threads, `fork`, and an end of the process at any time are its own matter. Out of memory, it returns
/// null, and Rust calls [`std::alloc::handle_alloc_error`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Allod;

// SAFETY: malloc and its relatives, which know no owner.
unsafe impl Blocks for Allod {
    #[inline]
    unsafe fn plain(&self, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_malloc(size) }
    }
    #[inline]
    unsafe fn zeroed(&self, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_calloc(1, size) }
    }
    #[inline]
    unsafe fn aligned(&self, alignment: usize, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_aligned_alloc(alignment, size) }
    }
    #[inline]
    unsafe fn resized(&self, block: *mut c_void, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_realloc(block, size) }
    }
    #[inline]
    unsafe fn free(&self, block: *mut c_void, size: usize) {
        unsafe { allod_sys::allod_free_sized(block, size) }
    }
}

// SAFETY: `Blocks` is for exactly this.
unsafe impl GlobalAlloc for Allod {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { blocks::alloc(self, layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { self.free(block.cast(), layout.size()) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe { blocks::alloc_zeroed(self, layout) }
    }
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe { blocks::realloc(self, block, layout, size) }
    }
}

/// The version of the library, as `major.minor.patch`.
pub fn version() -> &'static str {
    // SAFETY: the text is a constant.
    let text = unsafe { CStr::from_ptr(allod_sys::allod_version()) };
    text.to_str().expect("digits and points")
}

/// Sets an option, by its name with or without `ALLOD_`, as `purge_delay` or `ALLOD_PURGE_DELAY`.
///
/// # Errors
///
/// `NotFound`: there is no such option. `InvalidInput`: nor such a value. `PermissionDenied`: the option
/// counts at the start only; set it as a variable of the environment.
pub fn set_option(name: &str, value: &str) -> io::Result<()> {
    let name = CString::new(name.to_uppercase())?;
    let value = CString::new(value)?;
    // SAFETY: both texts end in a zero, and are read only.
    status(unsafe { allod_sys::allod_option_set(name.as_ptr(), value.as_ptr()) })
}

/// Makes the free blocks that the calling thread has at hand available to all threads. With `force`, also
/// returns all free memory to the system.
pub fn collect(force: bool) {
    // SAFETY: may be called at any time.
    unsafe { allod_sys::allod_collect(force.into()) }
}

fn status(error: c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
