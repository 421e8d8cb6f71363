//! The workloads on allod.

#[global_allocator]
static GLOBAL: allod::Allod = allod::Allod;

fn main() {
    allod_compare::run_named();
}
