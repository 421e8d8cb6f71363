//! The workloads on system.

#[global_allocator]
static GLOBAL: std::alloc::System = std::alloc::System;

fn main() {
    allod_compare::run_named();
}
