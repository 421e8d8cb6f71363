//! What a layout asks for, in the terms of the library.

use std::alloc::Layout;
use std::os::raw::c_void;
use std::ptr;

/// From this size on, memory that was just taken from the system is zero already more often than not, and
/// to touch its pages costs more than a try.
const LARGE: usize = 64 << 10;

/// Functions of the library that take and give blocks.
///
/// # Safety
///
/// Blocks are valid until they are freed. They are aligned to 16, or to 8 if they have up to 8 bytes.
pub(crate) unsafe trait Blocks {
    /// Null if there is no memory, like the next three. No size is 0.
    unsafe fn plain(&self, size: usize) -> *mut c_void;
    unsafe fn zeroed(&self, size: usize) -> *mut c_void;
    unsafe fn aligned(&self, alignment: usize, size: usize) -> *mut c_void;
    /// As aligned as `plain`. The old block stays if the result is null.
    unsafe fn resized(&self, block: *mut c_void, size: usize) -> *mut c_void;
    /// `size` is that of the last request for the block.
    unsafe fn free(&self, block: *mut c_void, size: usize);
}

/// Whether each block of the size has the alignment.
#[inline]
const fn is_plain(alignment: usize, size: usize) -> bool {
    alignment <= 8 || (alignment == 16 && size > 8)
}

#[inline]
pub(crate) unsafe fn alloc(heap: &impl Blocks, layout: Layout) -> *mut u8 {
    let block = if is_plain(layout.align(), layout.size()) {
        unsafe { heap.plain(layout.size()) }
    } else {
        unsafe { heap.aligned(layout.align(), layout.size()) }
    };
    block.cast()
}

#[inline]
pub(crate) unsafe fn alloc_zeroed(heap: &impl Blocks, layout: Layout) -> *mut u8 {
    if is_plain(layout.align(), layout.size()) {
        unsafe { heap.zeroed(layout.size()).cast() }
    } else {
        unsafe { aligned_zeroed(heap, layout) }
    }
}

#[cold]
unsafe fn aligned_zeroed(heap: &impl Blocks, layout: Layout) -> *mut u8 {
    let (alignment, size) = (layout.align(), layout.size());
    if size >= LARGE {
        let block = unsafe { heap.zeroed(size) };
        if block as usize % alignment == 0 {
            return block.cast();
        }
        unsafe { heap.free(block, size) };
    }
    let block: *mut u8 = unsafe { heap.aligned(alignment, size) }.cast();
    if !block.is_null() {
        // SAFETY: the block is new and has that many bytes.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

#[inline]
pub(crate) unsafe fn realloc(
    heap: &impl Blocks,
    block: *mut u8,
    layout: Layout,
    size: usize,
) -> *mut u8 {
    if is_plain(layout.align(), size) {
        unsafe { heap.resized(block.cast(), size).cast() }
    } else {
        unsafe { aligned_realloc(heap, block, layout, size) }
    }
}

/// `resized` keeps no alignment.
#[cold]
unsafe fn aligned_realloc(
    heap: &impl Blocks,
    block: *mut u8,
    layout: Layout,
    size: usize,
) -> *mut u8 {
    let moved: *mut u8 = unsafe { heap.aligned(layout.align(), size) }.cast();
    if !moved.is_null() {
        // SAFETY: both blocks are in use, and have at least so many bytes.
        unsafe {
            ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
            heap.free(block.cast(), layout.size());
        }
    }
    moved
}
