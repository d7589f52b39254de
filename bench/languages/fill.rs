//! Fills a map with strings in insert_all(), and keeps it.

use std::collections::HashMap;

#[inline(never)]
fn insert_all() -> HashMap<u32, String> {
    (0..400_000).map(|i| (i, "x".repeat(100))).collect()
}

fn main() {
    let all = insert_all();
    loop {
        std::hint::black_box(&all);
        std::thread::park();
    }
}
