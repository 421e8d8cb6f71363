//! What the programs do: work of usual Rust programs, which allocates in different ways. Each does the
//! same on every allocator, and prints how long it took and how much memory it had resident at most.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// A workload: its name, what it does, and a result that all allocators must agree on.
pub type Workload = (&'static str, fn() -> u64);

/// All workloads.
pub const WORKLOADS: [Workload; 6] = [
    ("strings", strings),
    ("tree", tree),
    ("growing", growing),
    ("zeroed", zeroed),
    ("pipeline", pipeline),
    ("threads", threads),
];

/// Runs the workload that the first argument names, and prints its result, nanoseconds and the most
/// resident bytes.
pub fn run_named() {
    let name = std::env::args().nth(1).expect("the name of a workload");
    let (_, work) = WORKLOADS.iter().find(|(each, _)| *each == name).expect("a known workload");
    let start = Instant::now();
    let result = work();
    let nanoseconds = start.elapsed().as_nanos();
    println!("{result} {nanoseconds} {}", most_resident_bytes());
}

fn most_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
}

/// Numbers that look random, the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A map of words that come and go.
fn strings() -> u64 {
    let mut chance = Chance(1);
    let mut words: HashMap<u64, String> = HashMap::new();
    for _ in 0..3_000_000 {
        let (key, length) = (chance.next(200_000), chance.next(120));
        if chance.next(3) == 0 {
            words.remove(&key);
        } else {
            words.insert(key, "w".repeat(length as usize));
        }
    }
    words.values().map(|word| word.len() as u64).sum()
}

/// Nodes of a tree, built and dropped.
fn tree() -> u64 {
    let mut sum = 0;
    for round in 0..10 {
        let mut chance = Chance(round + 1);
        let mut tree: BTreeMap<u64, Box<[u64; 4]>> = BTreeMap::new();
        for _ in 0..200_000 {
            let key = chance.next(1 << 40);
            tree.insert(key, Box::new([key; 4]));
        }
        sum += tree.values().map(|value| value[3] & 0xff).sum::<u64>();
    }
    sum
}

/// Vectors that grow byte by byte, a few of them large.
fn growing() -> u64 {
    let mut chance = Chance(3);
    let mut sum = 0;
    for _ in 0..2_000 {
        let mut vectors: Vec<Vec<u8>> = vec![Vec::new(); 20];
        for vector in &mut vectors {
            for byte in 0..chance.next(4_000) {
                vector.push(byte as u8);
            }
        }
        sum += vectors.iter().map(|vector| vector.len() as u64).sum::<u64>();
    }
    let mut large = Vec::new();
    for number in 0..40_000_000_u64 {
        large.push(number);
    }
    sum + large[39_999_999]
}

/// Buffers of zeros, partly written.
fn zeroed() -> u64 {
    let mut chance = Chance(4);
    let mut sum = 0;
    for _ in 0..20_000 {
        let mut buffer = vec![0_u8; 1 + chance.next(1 << 20) as usize];
        let written = buffer.len() / 16;
        buffer[..written].fill(1);
        sum += buffer.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>();
    }
    sum
}

/// Blocks that one thread allocates and another frees.
fn pipeline() -> u64 {
    let (sender, receiver) = mpsc::sync_channel::<Vec<Box<[u8]>>>(16);
    let producer = thread::spawn(move || {
        let mut chance = Chance(5);
        for _ in 0..20_000 {
            let batch = (0..100).map(|_| vec![1; 1 + chance.next(256) as usize].into()).collect();
            sender.send(batch).expect("somebody receives");
        }
    });
    let sum = receiver.iter().flatten().map(|block| block.len() as u64).sum();
    producer.join().expect("the producer ends");
    sum
}

/// As many threads as processors, each with blocks of its own.
fn threads() -> u64 {
    let count = thread::available_parallelism().map_or(2, |count| count.get().min(8)) as u64;
    let work = |seed: u64| {
        let mut chance = Chance(seed);
        let mut blocks: Vec<Vec<u64>> = vec![Vec::new(); 10_000];
        for _ in 0..2_000_000 {
            let (place, size) = (chance.next(10_000), chance.next(64));
            blocks[place as usize] = vec![1; size as usize];
        }
        blocks.iter().map(|block| block.len() as u64).sum::<u64>()
    };
    let threads: Vec<_> = (1..=count).map(|seed| thread::spawn(move || work(seed))).collect();
    threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
}
