//! What the library writes in pieces, as a whole.

use std::os::raw::{c_char, c_void};

use allod_sys::allod_write_t;

/// Everything that `function` writes.
pub(crate) fn written_by(function: unsafe extern "C" fn(allod_write_t, *mut c_void)) -> Vec<u8> {
    let mut text = Vec::new();
    // SAFETY: `append` gets the vector that it expects, during the call only.
    unsafe { function(append, (&mut text as *mut Vec<u8>).cast()) };
    text
}

unsafe extern "C" fn append(text: *const c_char, length: usize, context: *mut c_void) {
    // SAFETY: `written_by` has given the vector, and the library so much text.
    unsafe {
        let whole = &mut *context.cast::<Vec<u8>>();
        whole.extend_from_slice(std::slice::from_raw_parts(text.cast(), length));
    }
}
