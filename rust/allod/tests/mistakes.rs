//! What the hardened and the debug library say of a program's mistakes. With neither, nothing is tested.

use std::alloc::{alloc, dealloc, Layout};
use std::process::Command;

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

const CHECKS: bool = cfg!(any(feature = "hardened", feature = "debug"));
const MISTAKE: &str = "ALLOD_TEST_MISTAKE";

/// Runs this program again with one mistake, which must end it, and returns what it said.
fn report_of(mistake: &str) -> String {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_makes_its_mistake", "--nocapture"])
        .env(MISTAKE, mistake)
        .output()
        .unwrap();
    assert!(!done.status.success());
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn the_child_makes_its_mistake() {
    let layout = Layout::new::<[u8; 100]>();
    let make = |mistake: &str| unsafe {
        let block = alloc(layout);
        match mistake {
            "twice" => dealloc(block, layout),
            "behind" => block.add(100).write(1),
            "size" => return dealloc(block, Layout::new::<[u8; 900]>()),
            _ => unreachable!(),
        }
        dealloc(block, layout);
    };
    if let Ok(mistake) = std::env::var(MISTAKE) {
        make(&mistake);
    }
}

#[test]
fn mistakes_end_the_program_with_a_report() {
    if !CHECKS {
        return;
    }
    assert!(report_of("twice").contains("allod: error: double free of"));
    assert!(report_of("behind").contains("allod: error: write past the end of"));
    assert!(report_of("size").contains("allod: error: "));
}
