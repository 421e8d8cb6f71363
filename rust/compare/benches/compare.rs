//! Runs each workload on each allocator, each time in a new process and by turns, so that a change of the
//! machine meets all of them. Prints the least times and the memory of those runs.
//!
//! `cargo bench` runs all; `cargo bench -- WORKLOAD --rounds N` less or more of it.

use std::process::Command;

use allod_compare::WORKLOADS;

const PROGRAMS: [(&str, &str); 5] = [
    ("allod", env!("CARGO_BIN_EXE_allod")),
    ("mimalloc", env!("CARGO_BIN_EXE_mimalloc")),
    ("jemalloc", env!("CARGO_BIN_EXE_jemalloc")),
    ("snmalloc", env!("CARGO_BIN_EXE_snmalloc")),
    ("system", env!("CARGO_BIN_EXE_system")),
];

#[derive(Clone, Copy)]
struct Run {
    result: u64,
    nanoseconds: u64,
    resident: u64,
}

fn run(program: &str, workload: &str) -> Run {
    let done = Command::new(program).arg(workload).output().expect("the program was built");
    assert!(
        done.status.success(),
        "{program} {workload}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let text = String::from_utf8_lossy(&done.stdout);
    let mut numbers = text.split_whitespace().map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    Run { result: next(), nanoseconds: next(), resident: next() }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|each| each != "--bench").collect();
    let rounds = arguments.iter().position(|each| each == "--rounds");
    let rounds = rounds.map_or(5, |at| arguments[at + 1].parse().expect("a number of rounds"));
    let is_chosen = |name: &str| {
        let named = |(each, _): &(&str, _)| arguments.iter().any(|argument| argument == each);
        !WORKLOADS.iter().any(named) || arguments.iter().any(|argument| argument == name)
    };
    println!(
        "{:<12}{:<12}{:>12}{:>12}{:>16}",
        "workload", "allocator", "ms", "to allod", "resident MiB"
    );
    for (workload, _) in WORKLOADS.iter().filter(|(name, _)| is_chosen(name)) {
        let mut least: [Option<Run>; PROGRAMS.len()] = [None; PROGRAMS.len()];
        for _ in 0..rounds {
            for ((_, program), least) in PROGRAMS.iter().zip(&mut least) {
                let now = run(program, workload);
                if least.map_or(true, |before| now.nanoseconds < before.nanoseconds) {
                    *least = Some(now);
                }
            }
        }
        report(workload, &least.map(|run| run.expect("at least one round")));
    }
}

fn report(workload: &str, runs: &[Run]) {
    for ((allocator, _), run) in PROGRAMS.iter().zip(runs) {
        assert_eq!(run.result, runs[0].result, "{workload} gives the same on {allocator}");
        println!(
            "{workload:<12}{allocator:<12}{:>12.1}{:>12.2}{:>16.1}",
            run.nanoseconds as f64 / 1e6,
            run.nanoseconds as f64 / runs[0].nanoseconds as f64,
            run.resident as f64 / f64::from(1 << 20),
        );
    }
}
