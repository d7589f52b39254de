//! Passes through all memory: a sort, page rank, a stencil and a hash join.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::Arena;
use rand_core::Rng;

use super::super::counting::TouchCount;
use super::{BATCH_WORDS, RANDOM_BITS, random};

type Words = [AtomicU64];

/// Memory of this part of `bytes`, filled with small random numbers.
fn filled(bytes: u64, part: f64) -> Result<Arena> {
    let memory = Arena::map((bytes as f64 * part) as u64 / PAGE_SIZE * PAGE_SIZE)?;
    let mut random = random(bytes);
    memory.words().iter().for_each(|w| w.store(random.next_u64() & RANDOM_BITS, Relaxed));
    Ok(memory)
}

fn get(words: &Words, at: usize) -> u64 {
    words.get(at).map_or(0, |w| w.load(Relaxed))
}

fn set(words: &Words, at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Relaxed);
    }
}

fn float(words: &Words, at: usize) -> f64 {
    f64::from_bits(get(words, at))
}

/// A merge sort: each pass reads one half of the memory, and writes the other half. It merges sorted runs of twice
/// the length in each pass.
pub fn sort(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let (a, b) = (filled(bytes, 0.5)?, filled(bytes, 0.5)?);
    let (mut from, mut to) = (a.words(), b.words());
    progress.add(0)?;
    let mut random = random(bytes);
    loop {
        for run in from.chunks(BATCH_WORDS) {
            let mut sorted: Vec<u64> =
                run.iter().map(|_| random.next_u64() & RANDOM_BITS).collect();
            sorted.sort_unstable();
            run.iter().zip(sorted).for_each(|(to, value)| to.store(value, Relaxed));
            progress.add(run.len() as u64)?;
        }
        let mut length = BATCH_WORDS;
        while length < from.len() {
            for (run, to) in from.chunks(2 * length).zip(to.chunks(2 * length)) {
                let (left, right) = run.split_at(length.min(run.len()));
                merge(left, right, to, progress)?;
            }
            (from, to) = (to, from);
            length *= 2;
        }
    }
}

fn merge(left: &Words, right: &Words, to: &Words, progress: &mut TouchCount) -> Result<()> {
    let (mut l, mut r) = (0, 0);
    for batch in to.chunks(BATCH_WORDS) {
        for word in batch {
            let takes_left = r >= right.len() || l < left.len() && get(left, l) <= get(right, r);
            word.store(if takes_left { get(left, l) } else { get(right, r) }, Relaxed);
            l += usize::from(takes_left);
            r += usize::from(!takes_left);
        }
        progress.add(batch.len() as u64)?;
    }
    Ok(())
}

/// Page rank: each pass reads all edges in order, and the ranks of their vertices at random. Each vertex has eight
/// edges, most of them to vertices of low numbers.
pub fn graph(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    const DEGREE: usize = 8;
    let edges = filled(bytes, 0.8)?;
    let (a, b) = (filled(bytes, 0.1)?, filled(bytes, 0.1)?);
    let vertices = a.words().len();
    let mut random = random(bytes);
    for edge in edges.words() {
        let [x, y] = [random.next_u32(), random.next_u32()].map(|r| f64::from(r) / 2f64.powi(32));
        edge.store((x * y * vertices as f64) as u64, Relaxed);
    }
    let (mut from, mut to) = (a.words(), b.words());
    from.iter().for_each(|w| w.store(1f64.to_bits(), Relaxed));
    progress.add(0)?;
    loop {
        for (i, own) in edges.words().chunks(DEGREE).enumerate() {
            let sum: f64 = own.iter().map(|e| float(from, e.load(Relaxed) as usize)).sum();
            set(to, i, (0.15 + 0.85 * sum / DEGREE as f64).to_bits());
            if i % (BATCH_WORDS / DEGREE) == 0 {
                progress.add(BATCH_WORDS as u64)?;
            }
        }
        (from, to) = (to, from);
    }
}

/// A five-point stencil: each pass reads one half of the memory, and writes the other half.
pub fn stencil(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    const WIDTH: usize = 2048;
    let (a, b) = (filled(bytes, 0.5)?, filled(bytes, 0.5)?);
    let (mut from, mut to) = (a.words(), b.words());
    from.iter().for_each(|w| w.store(f64::to_bits(w.load(Relaxed) as f64), Relaxed));
    progress.add(0)?;
    loop {
        for row in (WIDTH..from.len().saturating_sub(WIDTH)).step_by(WIDTH) {
            for at in row..row + WIDTH {
                let near = [at, at - 1, at + 1, at - WIDTH, at + WIDTH];
                set(to, at, (near.map(|i| float(from, i)).iter().sum::<f64>() / 5.0).to_bits());
            }
            progress.add(WIDTH as u64)?;
        }
        (from, to) = (to, from);
    }
}

/// A hash join: each pass reads all rows of one table, and looks them up in the hash table of the other, which is a
/// quarter of the memory and half full.
pub fn join(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let rows = filled(bytes, 0.75)?;
    let table = Arena::map(bytes / 4 / PAGE_SIZE * PAGE_SIZE)?;
    let table = table.words();
    let place = |key: u64| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % table.len();
    let slot = |key: u64| {
        (place(key)..place(key) + table.len())
            .map(|i| i % table.len())
            .find(|&i| [0, key].contains(&get(table, i)))
    };
    for row in rows.words().iter().take(table.len() / 2) {
        let key = row.load(Relaxed) | 1 << 22;
        slot(key).into_iter().for_each(|i| set(table, i, key));
    }
    progress.add(0)?;
    let mut found = 0u64;
    loop {
        for batch in rows.words().chunks(BATCH_WORDS) {
            let keys = batch.iter().map(|row| row.load(Relaxed) | 1 << 22);
            found +=
                keys.filter(|&key| slot(key).is_some_and(|i| get(table, i) == key)).count() as u64;
            std::hint::black_box(found);
            progress.add(batch.len() as u64)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::counting;
    use super::*;

    fn words(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().map(|v| AtomicU64::new(*v)).collect()
    }

    #[test]
    fn a_merge_is_in_order_and_counted() {
        let out = tempfile::tempfile().unwrap();
        let mut progress = TouchCount::to(out.try_clone().unwrap());
        let to = words(&[0; 5]);
        merge(&words(&[1, 4, 4]), &words(&[2, 9]), &to, &mut progress).unwrap();
        assert_eq!(to.iter().map(|w| w.load(Relaxed)).collect::<Vec<_>>(), [1, 2, 4, 4, 9]);
        assert_eq!(counting::read(&out).unwrap(), 5);
    }
}
