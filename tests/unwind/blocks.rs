// Allocates on the way, and while a panic is in flight.
use std::collections::HashMap;

fn main() {
    let mut numbers = HashMap::new();
    for i in 0..2000u64 {
        numbers.insert(format!("k{}", i), vec![i; 10]);
    }
    let result = std::panic::catch_unwind(|| Vec::<u8>::new()[3]);
    std::process::exit(if numbers.len() == 2000 && result.is_err() { 0 } else { 1 });
}
