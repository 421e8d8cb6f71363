//! Compiles Allod from the sources in `source/`, by the lists of its CMakeLists.txt: one place says
//! what belongs to the library and how it is compiled.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("source");
    for part in ["CMakeLists.txt", "src", "include"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // Documentation needs no library.
    }
    refuse_other_systems();
    let text = fs::read_to_string(root.join("CMakeLists.txt")).expect("the package has the lists");
    let plan = Plan::new(&Lists::of(&text));
    let out = PathBuf::from(variable("OUT_DIR"));
    link(&out, &plan.compile(&root, &out));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {}", name))
}

fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{}", name)).is_some()
}

fn refuse_other_systems() {
    let system = variable("CARGO_CFG_TARGET_OS");
    let processor = variable("CARGO_CFG_TARGET_ARCH");
    if system != "linux" || !["x86_64", "aarch64"].contains(&processor.as_str()) {
        panic!("Allod runs on Linux with x86_64 or aarch64, not on {} with {}", system, processor);
    }
}

/// The lists `set(NAME words...)` of a file for CMake.
struct Lists(HashMap<String, Vec<String>>);

impl Lists {
    fn of(text: &str) -> Lists {
        let without_comments = |line: &str| line.split('#').next().unwrap_or("").to_owned() + "\n";
        let plain: String = text.lines().map(without_comments).collect();
        let list = |rest: &str| {
            let mut words = rest.split(')').next()?.split_whitespace().map(str::to_owned);
            Some((words.next()?, words.collect()))
        };
        Lists(plain.split("set(").skip(1).filter_map(list).collect())
    }

    fn get(&self, name: &str) -> Vec<String> {
        self.0.get(name).unwrap_or_else(|| panic!("CMakeLists.txt has no list {}", name)).clone()
    }
}

/// What is compiled, and how.
struct Plan {
    options: Vec<String>,
    /// One file each for the compiler, which then sees the headers once.
    units: Vec<(&'static str, Vec<String>)>,
    /// Compiled one by one, with exceptions.
    throwing: Vec<String>,
}

impl Plan {
    fn new(lists: &Lists) -> Plan {
        let mut options = lists.get("ALLOD_PRODUCT_OPTIONS");
        let mut core = lists.get("ALLOD_CORE_SOURCES");
        // Who asks for protection gets it, whatever another crate asks for.
        if has_feature("HARDENED") {
            core.extend(lists.get("ALLOD_HARDENED_SOURCES"));
            options.extend(lists.get("ALLOD_HARDENED_OPTIONS"));
        } else if has_feature("DEBUG") {
            core.extend(lists.get("ALLOD_DEBUG_SOURCES"));
            options.extend(lists.get("ALLOD_DEBUG_OPTIONS"));
        }
        if variable("CARGO_CFG_TARGET_ENV") == "musl"
            && variable("CARGO_CFG_TARGET_ARCH") == "x86_64"
        {
            options.extend(lists.get("ALLOD_MUSL_X86_64_OPTIONS"));
        }
        let throwing = lists.get("ALLOD_THROWING_SOURCES");
        core.retain(|source| !throwing.contains(source));
        let mut units = vec![("core", core)];
        if has_feature("OVERRIDE") {
            units.push(("override", lists.get("ALLOD_OVERRIDE_SOURCES")));
        }
        Plan { options, units, throwing }
    }

    fn compile(&self, root: &Path, out: &Path) -> Vec<PathBuf> {
        let mut compiler = compiler(root, out, &self.options);
        for (name, sources) in &self.units {
            let include =
                |source: &String| format!("#include \"{}\"\n", root.join(source).display());
            let unit = out.join(format!("{}.cpp", name));
            fs::write(&unit, sources.iter().map(include).collect::<String>())
                .expect("OUT_DIR is ours");
            compiler.file(unit);
        }
        let mut objects = compiler.compile_intermediates();
        let mut throwing = self::compiler(root, out, &self.options);
        throwing.flag("-fexceptions").files(self.throwing.iter().map(|source| root.join(source)));
        objects.extend(throwing.compile_intermediates());
        objects
    }
}

fn compiler(root: &Path, out: &Path, options: &[String]) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        // C++ without a C++ runtime.
        .cpp_link_stdlib(None)
        .std("c++20")
        // Whatever the profile says: the engine counts on dead branches to be dropped.
        .opt_level(2)
        .force_frame_pointer(false)
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("src"));
    // No path of this machine in messages and debug information.
    for (place, name) in [(out, "./build"), (root, ".")] {
        build.flag(format!("-ffile-prefix-map={}={}", place.display(), name));
    }
    for option in options {
        build.flag(option);
    }
    build
}

/// One relocatable object: a link takes all of it or nothing, never half of the functions.
fn link(out: &Path, objects: &[PathBuf]) {
    let whole = out.join("allod.o");
    let compiler = cc::Build::new().cpp(true).cpp_link_stdlib(None).get_compiler();
    let mut command = compiler.to_command();
    command.args(["-r", "-nostdlib", "-o"]).arg(&whole).args(objects);
    let status = command.status().expect("the compiler links, too");
    assert!(status.success(), "{:?} failed", command);
    cc::Build::new().object(&whole).compile("allod");
}
