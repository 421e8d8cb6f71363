//! The heap profile: which call stacks hold the memory, and which blocks leak.
//!
//! While it is on, allocations are sampled at random, on average one per so many bytes. It costs nothing
//! while it is off.

use std::io;

use crate::status;
use crate::text::written_by;

/// Starts the profile, or changes its interval, in bytes; 0: 512 KiB, 1: every allocation.
///
/// # Errors
///
/// `OutOfMemory`.
pub fn start(interval: usize) -> io::Result<()> {
    // SAFETY: may be called at any time.
    status(unsafe { allod_sys::allod_profile_start(interval) })
}

/// Stops it. Samples stay known until they are freed.
pub fn stop() {
    // SAFETY: may be called at any time.
    unsafe { allod_sys::allod_profile_stop() }
}

/// Resets totals and peaks, but not what is live.
pub fn reset() {
    // SAFETY: may be called at any time.
    unsafe { allod_sys::allod_profile_reset() }
}

/// The interval in bytes, while the profile is on.
pub fn interval() -> Option<usize> {
    // SAFETY: may be called at any time.
    match unsafe { allod_sys::allod_profile_interval() } {
        0 => None,
        bytes => Some(bytes),
    }
}

/// The profile as text for pprof, with the mappings of the process.
pub fn text() -> Vec<u8> {
    written_by(allod_sys::allod_profile_write)
}

/// Blocks that are allocated before this call do not count as leaks.
pub fn begin_leaks() {
    // SAFETY: may be called at any time.
    unsafe { allod_sys::allod_leaks_begin() }
}

/// Searches for sampled blocks that no pointer leads to, and writes them to the file that
/// `ALLOD_LEAKS_FILE` names, or to standard error. Returns their number.
///
/// A signal stops all other threads meanwhile, so their system calls that cannot be restarted fail with
/// `Interrupted`.
///
/// # Errors
///
/// Memory is exhausted, or the threads cannot be stopped.
pub fn check_leaks() -> io::Result<usize> {
    // SAFETY: not within an allocation, since this is safe code's.
    let found = unsafe { allod_sys::allod_leaks_check() };
    usize::try_from(found)
        .map_err(|_| io::Error::new(io::ErrorKind::Other, "the search for leaks was not possible"))
}
