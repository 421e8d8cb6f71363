//! Figures of the heap that the test itself uses.

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

#[test]
fn figures_count_what_the_program_holds() {
    let block = vec![1_u8; 32 << 20];
    let stats = allod::stats::get();
    assert!(stats.live >= block.len());
    assert!(stats.huge_blocks >= 1);
    drop(block);
    assert!(allod::stats::get().live < 32 << 20);
}

#[test]
fn figures_are_written_as_json_and_for_people() {
    let json = allod::stats::json();
    assert!(json.starts_with(&format!("{{\"version\": \"{}\"", allod::version())), "{json}");
    assert!(json.trim_end().ends_with('}'));
    assert!(allod::stats::text().contains("statistics of process"));
}
