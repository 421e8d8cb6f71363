//! First-class heaps.

use std::alloc::{GlobalAlloc, Layout};
use std::io::ErrorKind;
use std::time::Duration;

use allod::{Heap, Pages, Purge};

#[test]
fn a_heap_counts_its_blocks_and_knows_them() {
    let heap = Heap::builder().name("orders").build().unwrap();
    assert_eq!(heap.name(), "orders");
    let layout = Layout::new::<[u64; 20]>();
    let block = unsafe { heap.alloc(layout) };
    assert!(heap.contains(block));
    assert!(!Heap::new().unwrap().contains(block));
    assert_eq!(heap.stats().live_blocks, 1);
    assert!(heap.stats().live >= layout.size());
    assert!(format!("{heap:?}").contains("orders"));
    unsafe { heap.dealloc(block, layout) };
    assert_eq!(heap.stats().live_blocks, 0);
}

#[test]
fn a_limit_refuses_what_is_beyond_it() {
    let heap = Heap::builder().byte_limit(100_000).build().unwrap();
    let (small, large) = (Layout::new::<[u8; 1000]>(), Layout::new::<[u8; 200_000]>());
    let block = unsafe { heap.alloc(small) };
    assert!(unsafe { heap.alloc(large) }.is_null());
    assert!(unsafe { heap.realloc(block, small, large.size()) }.is_null());
    assert!(heap.contains(block));
    assert_eq!(heap.stats().refused, 2);
    heap.set_limit(None);
    let block = unsafe { heap.realloc(block, small, large.size()) };
    assert!(heap.contains(block));
}

#[test]
fn a_deleted_heap_leaves_its_blocks() {
    let heap = Heap::new().unwrap();
    let layout = Layout::new::<[u8; 100]>();
    let block = unsafe { heap.alloc_zeroed(layout) };
    heap.delete().unwrap();
    unsafe {
        assert!((0..100).all(|i| block.add(i).read() == 0));
        allod::Allod.dealloc(block, layout);
    }
}

#[test]
fn a_heap_with_pages_of_its_own_is_not_deleted_while_it_has_blocks() {
    let purge = Purge::After(Duration::from_millis(1));
    let heap = Heap::builder().purge(purge).pages(Pages::Large).build().unwrap();
    let block = unsafe { heap.alloc(Layout::new::<u64>()) };
    let heap = heap.delete().unwrap_err();
    assert!(heap.contains(block));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let error = Heap::builder().purge(Purge::AtOnce).locked(true).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = Heap::builder().name("a\0b").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[cfg(feature = "allocator-api2")]
mod containers {
    use std::thread;

    use allocator_api2::alloc::Allocator;
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;
    use allod::Heap;

    use super::Layout;

    #[test]
    fn containers_live_in_a_heap_and_leave_nothing_behind() {
        let heap = Heap::new().unwrap();
        let mut numbers = Vec::new_in(&heap);
        for number in 0..100_000_u64 {
            numbers.push(Box::new_in(number, &heap));
        }
        assert!(heap.contains(numbers.as_ptr()));
        assert_eq!(heap.stats().live_blocks, 100_001);
        numbers.truncate(10);
        numbers.shrink_to_fit();
        assert!(numbers.iter().map(|number| **number).eq(0..10));
        drop(numbers);
        assert_eq!(heap.stats().live_blocks, 0);
    }

    #[test]
    fn a_container_can_own_its_heap() {
        let mut bytes = Vec::new_in(Heap::new().unwrap());
        bytes.extend_from_slice(&[1_u8; 5000]);
        assert_eq!(bytes.allocator().stats().live_blocks, 1);
    }

    #[test]
    fn threads_share_a_heap() {
        let heap = Heap::new().unwrap();
        let boxes: std::vec::Vec<_> = thread::scope(|scope| {
            let fill = |n: usize| Box::new_in([n; 30], &heap);
            let threads: std::vec::Vec<_> = (0..4)
                .map(|t| scope.spawn(move || (0..500).map(|n| fill(t * 500 + n)).collect()))
                .collect();
            threads.into_iter().flat_map(|t| -> std::vec::Vec<_> { t.join().unwrap() }).collect()
        });
        assert_eq!(heap.stats().live_blocks, 2000);
        assert!(boxes.iter().enumerate().all(|(n, block)| **block == [n; 30]));
        drop(boxes);
        assert_eq!(heap.stats().live_blocks, 0);
    }

    #[test]
    fn blocks_of_no_bytes_and_changed_alignments_are_right() {
        let heap = Heap::new().unwrap();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        unsafe {
            let none = heap.allocate(layout(0, 64)).unwrap();
            assert_eq!(none.as_ptr() as *mut u8 as usize % 64, 0);
            assert_eq!(heap.stats().live_blocks, 0);
            let small = heap.grow_zeroed(none.cast(), layout(0, 64), layout(100, 4)).unwrap();
            assert!(small.as_ref().iter().all(|byte| *byte == 0));
            small.cast::<u8>().as_ptr().write_bytes(9, 100);
            let large =
                heap.grow_zeroed(small.cast(), layout(100, 4), layout(70_000, 4096)).unwrap();
            assert_eq!(large.cast::<u8>().as_ptr() as usize % 4096, 0);
            let contents = large.as_ref();
            assert_eq!(contents.len(), 70_000);
            assert!(contents[..100].iter().all(|byte| *byte == 9));
            assert!(contents[100..].iter().all(|byte| *byte == 0));
            let short = heap.shrink(large.cast(), layout(70_000, 4096), layout(10, 1)).unwrap();
            assert_eq!(short.as_ref(), [9; 10]);
            let none = heap.shrink(short.cast(), layout(10, 1), layout(0, 1)).unwrap();
            assert_eq!(heap.stats().live_blocks, 0);
            heap.deallocate(none.cast(), layout(0, 1));
        }
    }
}
