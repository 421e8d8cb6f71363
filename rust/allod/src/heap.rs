use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, CString};
use std::mem::{size_of, ManuallyDrop};
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::time::Duration;
use std::{fmt, io};

use allod_sys::{allod_heap_options_t, allod_heap_t};

use crate::blocks::{self, Blocks};

/// Figures of one heap, in bytes and counts.
pub type HeapStats = allod_sys::allod_heap_stats_t;

/// A first-class heap: its blocks lie apart from all others, and can be counted, limited and freed
/// together. Dropping the heap frees all its blocks, in time proportional to its slabs.
///
/// Any thread may allocate in it, one at a time, and any thread may free its blocks. With the feature
/// `allocator-api2` it is an `Allocator`, and so is a reference to it: a container that borrows the heap
/// cannot outlive it.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let heap = allod::Heap::builder().byte_limit(1 << 20).build()?;
/// # #[cfg(feature = "allocator-api2")] {
/// let text = allocator_api2::boxed::Box::new_in([0_u8; 100], &heap);
/// assert!(heap.contains(text.as_ptr()));
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Heap(NonNull<allod_heap_t>);

// SAFETY: the functions of heaps are thread-safe, but for those that end one, which take its owner.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap without a limit.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn new() -> io::Result<Heap> {
        Heap::builder().build()
    }

    /// A heap with options.
    pub fn builder() -> HeapBuilder {
        HeapBuilder::default()
    }

    /// Gives up the heap, and leaves its blocks valid: they belong to the process then, and go by
    /// `allod_sys::allod_free`.
    ///
    /// # Errors
    ///
    /// The heap, if it has blocks in use and pages or a way of purging of its own.
    pub fn delete(self) -> Result<(), Heap> {
        let heap = ManuallyDrop::new(self);
        // SAFETY: its owner gives it up, so no one uses it.
        match unsafe { allod_sys::allod_heap_delete(heap.as_raw()) } {
            0 => Ok(()),
            _ => Err(ManuallyDrop::into_inner(heap)),
        }
    }

    /// Its figures.
    pub fn stats(&self) -> HeapStats {
        let mut stats = HeapStats::default();
        // SAFETY: the heap is alive, and the size is that of the structure.
        let error = unsafe {
            allod_sys::allod_heap_stats_get(self.as_raw(), &mut stats, size_of::<HeapStats>())
        };
        debug_assert_eq!(error, 0);
        stats
    }

    /// Its name, up to 47 bytes of it; empty if it has none.
    pub fn name(&self) -> String {
        // SAFETY: the text is valid as long as the heap.
        let name = unsafe { CStr::from_ptr(allod_sys::allod_heap_name(self.as_raw())) };
        name.to_string_lossy().into_owned()
    }

    /// Whether the address is the start of a block in use of this heap. Takes any address.
    pub fn contains<T>(&self, block: *const T) -> bool {
        // SAFETY: the address is looked up, never read.
        unsafe { allod_sys::allod_heap_contains(self.as_raw(), block.cast()) != 0 }
    }

    /// Limits the bytes in blocks in use, with rounding to size classes; blocks beyond the limit stay
    /// valid. `None`: no limit.
    pub fn set_limit(&self, bytes: Option<usize>) {
        // SAFETY: the heap is alive.
        unsafe { allod_sys::allod_heap_set_limit(self.as_raw(), bytes.unwrap_or(0)) }
    }

    /// Frees slabs without blocks, and returns their bytes.
    pub fn collect(&self) -> usize {
        // SAFETY: the heap is alive.
        unsafe { allod_sys::allod_heap_collect(self.as_raw()) }
    }

    /// Writes the blocks in use to standard error, and returns their number.
    pub fn report_leaks(&self) -> usize {
        // SAFETY: the heap is alive.
        unsafe { allod_sys::allod_heap_report_leaks(self.as_raw()) }
    }

    /// The heap for functions of `allod_sys`, which must not end it.
    pub fn as_raw(&self) -> *mut allod_heap_t {
        self.0.as_ptr()
    }

    /// Gives the heap away, and with it the duty to end it.
    pub fn into_raw(self) -> *mut allod_heap_t {
        ManuallyDrop::new(self).as_raw()
    }

    /// Takes over a heap that `allod_sys` has made.
    ///
    /// # Safety
    ///
    /// The heap must be alive, and nobody else may end it.
    pub unsafe fn from_raw(heap: NonNull<allod_heap_t>) -> Heap {
        Heap(heap)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: whoever used the heap had borrowed it.
        unsafe { allod_sys::allod_heap_destroy(self.as_raw()) }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Heap").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}

// SAFETY: the functions of the heap, which stays alive as long as its allocator.
unsafe impl Blocks for Heap {
    #[inline]
    unsafe fn plain(&self, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_heap_malloc(self.as_raw(), size) }
    }
    #[inline]
    unsafe fn zeroed(&self, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_heap_calloc(self.as_raw(), 1, size) }
    }
    #[inline]
    unsafe fn aligned(&self, alignment: usize, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_heap_aligned_alloc(self.as_raw(), alignment, size) }
    }
    #[inline]
    unsafe fn resized(&self, block: *mut c_void, size: usize) -> *mut c_void {
        unsafe { allod_sys::allod_heap_realloc(self.as_raw(), block, size) }
    }
    #[inline]
    unsafe fn free(&self, block: *mut c_void, size: usize) {
        unsafe { allod_sys::allod_heap_free_sized(self.as_raw(), block, size) }
    }
}

// SAFETY: `Blocks` is for exactly this.
unsafe impl GlobalAlloc for Heap {
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

/// Pages of a heap's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// Those of the process.
    #[default]
    Usual,
    /// Transparent huge pages where available, small pages elsewhere.
    Large,
    /// Reserved huge pages (`vm.nr_hugepages`) of 2 MiB.
    Reserved2M,
    /// Reserved huge pages of 1 GiB.
    Reserved1G,
}

/// When a heap's free memory returns to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purge {
    /// By the delay and budget of the process.
    #[default]
    AsProcess,
    /// At once.
    AtOnce,
    /// Never.
    Never,
    /// After this time, in whole milliseconds, without a budget.
    After(Duration),
}

/// Options of a [`Heap`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct HeapBuilder {
    name: Option<String>,
    byte_limit: Option<usize>,
    pages: Pages,
    purge: Purge,
    locked: bool,
    nodes: u64,
    report_leaks: bool,
    unseen: bool,
    hardened: bool,
}

impl HeapBuilder {
    /// Shown in statistics. The first 47 bytes count.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
    /// Limit of bytes in blocks in use, with rounding to size classes. The heap holds more memory than
    /// that, since slabs have 64 KiB and more.
    pub fn byte_limit(mut self, bytes: usize) -> Self {
        self.byte_limit = Some(bytes);
        self
    }
    /// Which pages its memory has.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
    /// When its free memory returns to the system.
    pub fn purge(mut self, purge: Purge) -> Self {
        self.purge = purge;
        self
    }
    /// Locks its memory, as by `mlock`.
    pub fn locked(mut self, locked: bool) -> Self {
        self.locked = locked;
        self
    }
    /// Permitted NUMA nodes, one bit each, node 0 the lowest; 0: any.
    pub fn nodes(mut self, nodes: u64) -> Self {
        self.nodes = nodes;
        self
    }
    /// Reports blocks in use when the heap is dropped, and when the process ends.
    pub fn report_leaks(mut self, reports: bool) -> Self {
        self.report_leaks = reports;
        self
    }
    /// Excludes the heap from all statistics but its own.
    pub fn unseen(mut self, unseen: bool) -> Self {
        self.unseen = unseen;
        self
    }
    /// Detects misuse of the heap's blocks, as the hardened library does for all.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.hardened = hardened;
        self
    }

    /// Makes the heap.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: the options contradict each other, the name has a zero in it, or there is no such
    /// node. `OutOfMemory`: no such pages or no memory. `PermissionDenied`: no memory may be locked.
    pub fn build(self) -> io::Result<Heap> {
        let name = self.name.as_deref().map(CString::new).transpose()?;
        let (purge, purge_delay_ms) = match self.purge {
            Purge::AsProcess => (allod_sys::ALLOD_PURGE_AS_PROCESS, 0),
            Purge::AtOnce => (allod_sys::ALLOD_PURGE_AT_ONCE, 0),
            Purge::Never => (allod_sys::ALLOD_PURGE_NEVER, 0),
            Purge::After(delay) => (
                allod_sys::ALLOD_PURGE_AFTER_DELAY,
                u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),
            ),
        };
        let options = allod_heap_options_t {
            name: name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
            byte_limit: self.byte_limit.unwrap_or(0),
            pages: match self.pages {
                Pages::Usual => allod_sys::ALLOD_PAGES_USUAL,
                Pages::Large => allod_sys::ALLOD_PAGES_LARGE,
                Pages::Reserved2M => allod_sys::ALLOD_PAGES_2M,
                Pages::Reserved1G => allod_sys::ALLOD_PAGES_1G,
            },
            purge,
            purge_delay_ms,
            locked: self.locked.into(),
            nodes: self.nodes,
            report_leaks: self.report_leaks.into(),
            unseen: self.unseen.into(),
            hardened: self.hardened.into(),
            ..Default::default()
        };
        // SAFETY: the options are whole, and the name is copied.
        let heap = unsafe { allod_sys::allod_heap_new_ex(&options) };
        NonNull::new(heap).map(Heap).ok_or_else(io::Error::last_os_error)
    }
}

#[cfg(feature = "allocator-api2")]
mod allocator {
    use super::Heap;
    use allocator_api2::alloc::{AllocError, Allocator};
    use std::alloc::{GlobalAlloc, Layout};
    use std::ptr::{self, NonNull};

    /// No memory, for a layout without bytes: an address that only is aligned.
    fn empty(layout: Layout) -> NonNull<[u8]> {
        let address = layout.align() as *mut u8;
        // SAFETY: an alignment is never 0.
        unsafe { NonNull::new_unchecked(ptr::slice_from_raw_parts_mut(address, 0)) }
    }

    fn block_of(address: *mut u8, size: usize) -> Result<NonNull<[u8]>, AllocError> {
        NonNull::new(ptr::slice_from_raw_parts_mut(address, size)).ok_or(AllocError)
    }

    impl Heap {
        unsafe fn resize(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            if old.size() == 0 {
                return self.allocate(new);
            }
            if new.size() == 0 {
                unsafe { self.dealloc(block.as_ptr(), old) };
                return Ok(empty(new));
            }
            // The old alignment is the block's own matter: what is asked for is the new one.
            let layout =
                Layout::from_size_align(old.size(), new.align()).map_err(|_| AllocError)?;
            block_of(unsafe { self.realloc(block.as_ptr(), layout, new.size()) }, new.size())
        }
    }

    // SAFETY: blocks stay valid until they are freed or the heap is dropped, which is when it and all
    // references to it are gone. Moving a heap moves its address only.
    unsafe impl Allocator for Heap {
        #[inline]
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                return Ok(empty(layout));
            }
            block_of(unsafe { self.alloc(layout) }, layout.size())
        }
        #[inline]
        fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                return Ok(empty(layout));
            }
            block_of(unsafe { self.alloc_zeroed(layout) }, layout.size())
        }
        #[inline]
        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            if layout.size() != 0 {
                unsafe { self.dealloc(block.as_ptr(), layout) };
            }
        }
        unsafe fn grow(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            unsafe { self.resize(block, old, new) }
        }
        unsafe fn grow_zeroed(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            let grown = unsafe { self.resize(block, old, new) }?;
            // SAFETY: the block has the new size, of which the old one is written.
            unsafe {
                let rest = grown.cast::<u8>().as_ptr().add(old.size());
                rest.write_bytes(0, new.size() - old.size());
            }
            Ok(grown)
        }
        unsafe fn shrink(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            unsafe { self.resize(block, old, new) }
        }
    }
}
