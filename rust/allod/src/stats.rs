//! Figures of the process's heap. They are computed when asked for, and are exact while no other thread
//! allocates or frees.

use std::mem::size_of;

use crate::text::written_by;

/// Main figures, in bytes and counts.
pub type Stats = allod_sys::allod_stats_t;

/// The main figures.
pub fn get() -> Stats {
    let mut stats = Stats::default();
    // SAFETY: the size is that of the structure.
    let error = unsafe { allod_sys::allod_stats_get(&mut stats, size_of::<Stats>()) };
    debug_assert_eq!(error, 0);
    stats
}

/// All figures as one JSON object.
pub fn json() -> String {
    String::from_utf8_lossy(&written_by(allod_sys::allod_stats_json)).into_owned()
}

/// All figures for people.
pub fn text() -> String {
    String::from_utf8_lossy(&written_by(allod_sys::allod_stats_text)).into_owned()
}
