//! The tests of the crate `bytes`, on Allod.
#![allow(warnings)]

#[global_allocator]
static ALLOD: allod::Allod = allod::Allod;

include!(concat!(env!("OUT_DIR"), "/bytes.rs"));
