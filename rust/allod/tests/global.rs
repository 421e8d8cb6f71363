//! A program on Allod.
#![deny(unsafe_op_in_unsafe_fn)]

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::collections::HashMap;
use std::os::raw::{c_char, c_void};
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(block: *mut c_void);
}

fn is_allods<T>(block: *const T) -> bool {
    unsafe {
        allod_sys::allod_bounds(block.cast(), std::ptr::null_mut(), std::ptr::null_mut()) == 1
    }
}

/// Pages of the process that are in memory.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The bytes that a block of the size has when it is filled with this seed.
fn pattern(seed: usize, size: usize) -> Vec<u8> {
    let piece: Vec<u8> = (0..251).map(|i| (seed * 31 + i * 7 + 1) as u8).collect();
    piece.repeat(size / piece.len() + 1)[..size].to_vec()
}

unsafe fn fill(block: *mut u8, seed: usize, size: usize) {
    unsafe { std::slice::from_raw_parts_mut(block, size) }.copy_from_slice(&pattern(seed, size));
}

unsafe fn assert_filled(block: *const u8, seed: usize, size: usize) {
    assert!(unsafe { std::slice::from_raw_parts(block, size) } == pattern(seed, size));
}

#[test]
fn the_blocks_of_the_program_are_allods() {
    assert!(is_allods(&*Box::new(1)));
    assert!(is_allods(vec![0_u8; 10 << 20].as_ptr()));
    assert!(is_allods("text".repeat(100).as_ptr()));
    assert!(!is_allods(&1));
}

#[test]
fn malloc_is_replaced_if_and_only_if_a_feature_asks_for_it() {
    let copy = unsafe { strdup(b"text\0".as_ptr().cast()) };
    assert_eq!(is_allods(copy), cfg!(feature = "override"));
    unsafe { free(copy.cast()) };
}

#[test]
fn every_alignment_holds_and_contents_move_along() {
    const SIZES: [usize; 12] = [1, 7, 8, 9, 15, 16, 17, 100, 4096, 5000, 70_000, 300_000];
    for alignment in (0..=16).map(|power| 1_usize << power) {
        let mut seed = alignment;
        let mut layout = Layout::from_size_align(SIZES[0], alignment).unwrap();
        let mut block = unsafe { alloc(layout) };
        unsafe { fill(block, seed, layout.size()) };
        for size in SIZES.iter().chain(SIZES.iter().rev()).copied() {
            unsafe {
                block = realloc(block, layout, size);
                assert!(!block.is_null());
                assert_eq!(block as usize % alignment, 0, "{size} bytes by {alignment}");
                assert_filled(block, seed, layout.size().min(size));
                layout = Layout::from_size_align(size, alignment).unwrap();
                seed += 1;
                fill(block, seed, size);
            }
        }
        unsafe { dealloc(block, layout) };
    }
}

#[test]
fn zeroed_memory_is_zero_also_where_blocks_were_written_before() {
    for alignment in [1, 16, 64, 4096, 1 << 17] {
        for size in [1, 24, 1000, 40_000, 100_000, 5 << 20] {
            let layout = Layout::from_size_align(size, alignment).unwrap();
            for _ in 0..3 {
                unsafe {
                    let block = alloc_zeroed(layout);
                    assert_eq!(block as usize % alignment, 0);
                    let contents = std::slice::from_raw_parts(block, size);
                    assert!(contents == vec![0; size]);
                    block.write_bytes(0xa5, size);
                    dealloc(block, layout);
                }
            }
        }
    }
}

#[test]
fn a_large_zeroed_block_takes_no_memory_before_it_is_written() {
    const BYTES: usize = 256 << 20;
    for alignment in [8, 64, 4096] {
        allod::collect(true);
        let before = resident_bytes();
        let layout = Layout::from_size_align(BYTES, alignment).unwrap();
        let block = unsafe { alloc_zeroed(layout) };
        assert!(!block.is_null());
        assert!(resident_bytes() < before + BYTES / 2, "aligned to {alignment}");
        unsafe { dealloc(block, layout) };
    }
}

#[test]
fn what_cannot_be_had_is_null() {
    let most = isize::MAX as usize;
    for alignment in [1, 16, 4096] {
        let layout = Layout::from_size_align(most & !4095, alignment).unwrap();
        assert!(unsafe { alloc(layout) }.is_null());
        assert!(unsafe { alloc_zeroed(layout) }.is_null());
    }
    let mut bytes = vec![7_u8; 100];
    assert!(bytes.try_reserve(most - 4096).is_err());
    assert_eq!(bytes, [7; 100]);
}

#[test]
fn blocks_go_from_thread_to_thread() {
    let (sender, receiver) = mpsc::sync_channel::<HashMap<usize, String>>(64);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..200 {
                    let text = |i: usize| (i, "x".repeat((thread + round + i) % 300));
                    sender.send((0..20).map(text).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let lengths: usize = receiver.iter().flat_map(|map| map.into_values()).map(|s| s.len()).sum();
    let sum = |thread: usize| -> usize {
        (0..200).flat_map(|round| (0..20).map(move |i| (thread + round + i) % 300)).sum()
    };
    assert_eq!(lengths, (0..4).map(sum).sum::<usize>());
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn options_can_be_set_and_wrong_ones_are_refused() {
    allod::set_option("purge_budget", "8M").unwrap();
    allod::set_option("ALLOD_PURGE_BUDGET", "8M").unwrap();
    let kind = |name, value| allod::set_option(name, value).unwrap_err().kind();
    assert_eq!(kind("colour", "red"), std::io::ErrorKind::NotFound);
    assert_eq!(kind("purge_budget", "red"), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind("leaks", "1"), std::io::ErrorKind::PermissionDenied);
    allod::collect(true);
    assert_eq!(allod::version(), env!("CARGO_PKG_VERSION"));
}
