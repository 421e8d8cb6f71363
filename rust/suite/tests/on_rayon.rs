//! The tests of the crate `rayon`, on Allod.
#![allow(warnings)]

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

include!(concat!(env!("OUT_DIR"), "/rayon.rs"));
