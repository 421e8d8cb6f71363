//! The profile of the heap that the test itself uses.

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

#[inline(never)]
fn lose(size: usize) {
    let block = Box::leak(vec![0_u8; size].into_boxed_slice());
    // The compiler must not see that nobody reads it.
    unsafe { block.as_mut_ptr().write_volatile(1) };
}

#[test]
fn the_profile_tells_what_is_held_and_what_leaks() {
    assert_eq!(allod::profile::interval(), None);
    allod::profile::start(1).unwrap();
    allod::profile::begin_leaks();
    assert_eq!(allod::profile::interval(), Some(1));
    let held = vec![7_u8; 12_345];
    let text = String::from_utf8(allod::profile::text()).unwrap();
    assert!(text.starts_with("heap profile:"), "{text}");
    assert!(text.contains("MAPPED_LIBRARIES"));
    // Registers and dead parts of the stack may hold some of the addresses.
    for _ in 0..20 {
        lose(100);
    }
    assert!(allod::profile::check_leaks().unwrap() >= 10);
    allod::profile::stop();
    assert_eq!(allod::profile::interval(), None);
    allod::profile::reset();
    drop(held);
}
