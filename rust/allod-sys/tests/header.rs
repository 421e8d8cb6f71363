//! The declarations are those of the header.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::mem::size_of;

use allod_sys::*;

const HEADER: &str = include_str!("../source/include/allod.h");
const DECLARED: &str = include_str!("../src/lib.rs");
/// They throw C++ exceptions.
const LEFT_OUT: [&str; 2] = ["allod_new", "allod_new_aligned"];

/// The names `allod_...` right before an opening bracket, where `starts` says that one is declared.
fn names<'a>(text: &'a str, starts: &str) -> BTreeSet<&'a str> {
    let name = |rest: &'a str| {
        let before = rest.split('(').next().unwrap();
        before.split(|c: char| !c.is_alphanumeric() && c != '_').last().unwrap()
    };
    text.split(starts).skip(1).map(name).filter(|name| name.starts_with("allod_")).collect()
}

#[test]
fn every_function_of_the_header_is_declared() {
    let mut wanted = names(HEADER, "\nALLOD_API ");
    for name in LEFT_OUT {
        assert!(wanted.remove(name));
    }
    assert!(wanted.contains("allod_malloc"));
    assert_eq!(names(DECLARED, "pub fn "), wanted);
}

#[test]
fn structures_have_the_sizes_that_the_library_expects() {
    let mut stats = allod_stats_t::default();
    let mut summary = allod_profile_summary_t::default();
    unsafe {
        assert_eq!(allod_stats_get(&mut stats, size_of::<allod_stats_t>()), 0);
        let bytes = size_of::<allod_profile_summary_t>();
        assert_eq!(allod_profile_summary_get(&mut summary, bytes), 0);

        let mut options = allod_heap_options_t { byte_limit: 1 << 20, ..Default::default() };
        let heap = allod_heap_new_ex(&options);
        assert!(!heap.is_null());
        let mut figures = allod_heap_stats_t::default();
        assert_eq!(allod_heap_stats_get(heap, &mut figures, size_of::<allod_heap_stats_t>()), 0);
        assert_eq!(figures.limit, 1 << 20);
        assert!(allod_heaps_get(std::ptr::null_mut(), 0, size_of::<allod_heap_row_t>()) >= 1);
        let block = allod_malloc(1);
        assert!(allod_spans_get(std::ptr::null_mut(), 0, size_of::<allod_span_t>()) >= 1);
        allod_free(block);
        allod_heap_destroy(heap);

        // Larger than what the library knows: the declaration would have fields that it lacks.
        options.struct_size += 8;
        assert!(allod_heap_new_ex(&options).is_null());
    }
}

#[test]
fn the_crate_has_the_version_of_the_library() {
    let version = unsafe { CStr::from_ptr(allod_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
