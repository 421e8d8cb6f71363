//! Finds the tests that the packages of other crates bring along, and makes each a module of ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The crates, and those of their tests that need nothing special of the machine or of the allocator.
const CRATES: [(&str, &[&str]); 2] = [
    (
        "bytes",
        &[
            "test_buf",
            "test_buf_mut",
            "test_bytes",
            "test_chain",
            "test_debug",
            "test_iter",
            "test_reader",
            "test_take",
        ],
    ),
    ("rayon", &["collect", "cross-pool", "drain_vec", "intersperse", "iter_panic", "issue671"]),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=Cargo.toml");
    let metadata = metadata();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for (name, tests) in CRATES {
        let folder = folder_of(&metadata, name);
        let module = |test: &&str| {
            let path = folder.join("tests").join(format!("{}.rs", test));
            assert!(path.is_file(), "{} has no {}", name, path.display());
            format!("#[path = {:?}]\nmod {};\n", path, test.replace('-', "_"))
        };
        let modules: String = tests.iter().map(module).collect();
        fs::write(out.join(format!("{}.rs", name)), modules).expect("OUT_DIR is ours");
    }
}

/// What cargo knows of all packages, as text.
fn metadata() -> String {
    let cargo = env::var_os("CARGO").expect("cargo sets it");
    let done = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .arg("--filter-platform")
        .arg(env::var_os("TARGET").expect("cargo sets it"))
        .output()
        .expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("JSON is UTF-8")
}

/// The folder of a package: that of the one `manifest_path` which ends in `/NAME-VERSION/Cargo.toml`.
fn folder_of(metadata: &str, name: &str) -> PathBuf {
    let start = format!("{}-", name);
    let paths = metadata
        .split("\"manifest_path\":\"")
        .skip(1)
        .filter_map(|rest| Some(Path::new(rest.split('"').next()?).parent()?.to_owned()));
    let is_it = |path: &PathBuf| {
        let folder = path.file_name().and_then(|part| part.to_str()).unwrap_or("");
        folder
            .strip_prefix(&start)
            .map_or(false, |rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    paths.into_iter().find(is_it).unwrap_or_else(|| panic!("no package {}", name))
}
