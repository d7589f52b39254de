//! Data that arrives: points that are clustered, transactions in which frequent sets of items are sought, and a stream
//! whose equal parts are stored once, like streamcluster, freqmine and dedup of PARSEC.

use std::collections::HashMap;

use anyhow::Result;
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::Contents;
use super::super::counting::TouchCount;
use super::{fitting, random};

/// Dimensions of a point.
const DIMENSIONS: usize = 32;
type Point = [f32; DIMENSIONS];
/// Blocks of points that stay in memory.
const BLOCKS: usize = 16;
/// Centres of clusters.
const CENTRES: usize = 16;
/// Passes through a block.
const PASSES: usize = 12;
/// Points between two reports.
const STRIDE: usize = 1024;

/// Clusters of a stream of points: it passes through each block of points several times, and replaces it much
/// later.
pub fn cluster(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let n = fitting(bytes, 1.0 / BLOCKS as f64, size_of::<Point>());
    let mut random = random(bytes);
    let mut blocks: Vec<Vec<Point>> = (0..BLOCKS).map(|_| points(n, &mut random)).collect();
    let mut centres: Vec<Point> = blocks[0].iter().step_by(n.div_ceil(CENTRES)).copied().collect();
    progress.add(0)?;
    loop {
        for block in &mut blocks {
            for _ in 0..PASSES {
                centres = means(block, &centres, progress)?;
            }
            arrive(block, &mut random);
        }
    }
}

fn points(n: usize, random: &mut Xoshiro256PlusPlus) -> Vec<Point> {
    let mut points = vec![[0.0; DIMENSIONS]; n];
    arrive(&mut points, random);
    points
}

/// Points near some places, whose coordinates are whole numbers.
fn arrive(points: &mut [Point], random: &mut Xoshiro256PlusPlus) {
    for point in points {
        let (place, noise) = (random.next_u64() % CENTRES as u64, random.next_u64());
        for (axis, value) in point.iter_mut().enumerate() {
            let whole = place.wrapping_mul(axis as u64 * 2 + 1) % 16;
            *value = whole as f32 + (noise >> axis & 1) as f32 / 4.0;
        }
    }
}

/// The means of the points that are nearest to each centre (Lloyd, 1982).
fn means(points: &[Point], centres: &[Point], progress: &mut TouchCount) -> Result<Vec<Point>> {
    let mut sums = vec![([0.0f64; DIMENSIONS], 0.0f64); centres.len()];
    for batch in points.chunks(STRIDE) {
        for point in batch {
            let square =
                |c: &Point| -> f32 { c.iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum() };
            let each = centres.iter().map(square).enumerate();
            let nearest = each.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(i, _)| i);
            let (sum, count) = &mut sums[nearest];
            sum.iter_mut().zip(point).for_each(|(sum, x)| *sum += f64::from(*x));
            *count += 1.0;
        }
        progress.add(batch.len() as u64)?;
    }
    let mean = |(old, (sum, count)): (&Point, ([f64; DIMENSIONS], f64))| {
        if count > 0.0 { sum.map(|s| (s / count) as f32) } else { *old }
    };
    Ok(centres.iter().zip(sums).map(mean).collect())
}

/// Items of a transaction.
const ITEMS: usize = 48;
type Transaction = [u16; ITEMS];
/// Number of different items.
const KINDS: usize = 4096;
/// The items whose sets are sought, of which each has a bit for each transaction.
const CANDIDATES: usize = 96;
/// Searches in the same bits, for less and less frequent sets.
const ROUNDS: u64 = 64;

/// Sets of items that are frequent in transactions (Zaki, 2000): the transactions are read once, and then only the
/// bits of the most frequent items, repeatedly. So most of the memory is idle for a long time.
pub fn itemsets(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    // Each transaction has a bit for each candidate.
    let each = size_of::<Transaction>() + CANDIDATES / 8;
    let n = fitting(bytes, 1.0, each);
    let mut random = random(bytes);
    let transactions: Vec<Transaction> = (0..n).map(|_| transaction(&mut random)).collect();
    let mut bits = vec![vec![0u64; n.div_ceil(64)]; CANDIDATES];
    progress.add(0)?;
    for job in 0.. {
        // Other candidates in each job.
        mark(&transactions, job * 7 % 32, &mut bits, progress)?;
        for share in 50..50 + ROUNDS {
            std::hint::black_box(frequent(&bits, n as u64 / share, progress)?);
        }
    }
    Ok(())
}

/// Items of low numbers are frequent.
fn transaction(random: &mut Xoshiro256PlusPlus) -> Transaction {
    [(); ITEMS].map(|()| {
        let x = f64::from(random.next_u32()) / 2f64.powi(32);
        (x * x * x * KINDS as f64) as u16
    })
}

/// Sets the bits of the items from `first` on.
fn mark(
    transactions: &[Transaction],
    first: usize,
    bits: &mut [Vec<u64>],
    progress: &mut TouchCount,
) -> Result<()> {
    for (at, batch) in transactions.chunks(64).enumerate() {
        bits.iter_mut().for_each(|bits| bits[at] = 0);
        for (bit, transaction) in batch.iter().enumerate() {
            for &item in transaction {
                if let Some(bits) =
                    usize::from(item).checked_sub(first).and_then(|i| bits.get_mut(i))
                {
                    bits[at] |= 1 << bit;
                }
            }
        }
        if at % 64 == 0 {
            // As much time as for so many words of the sets.
            progress.add(64 * 24)?;
        }
    }
    Ok(())
}

/// The pairs and the sets of three that occur at least so often.
fn frequent(bits: &[Vec<u64>], least: u64, progress: &mut TouchCount) -> Result<Vec<Vec<usize>>> {
    let mut found = Vec::new();
    for i in 0..bits.len() {
        for j in i + 1..bits.len() {
            let both: Vec<u64> = bits[i].iter().zip(&bits[j]).map(|(a, b)| a & b).collect();
            progress.add(both.len() as u64 / 64)?;
            if both.iter().map(|w| u64::from(w.count_ones())).sum::<u64>() < least {
                continue;
            }
            found.push(vec![i, j]);
            for (k, third) in bits.iter().enumerate().skip(j + 1) {
                let all = both.iter().zip(third).map(|(a, b)| u64::from((a & b).count_ones()));
                if all.sum::<u64>() >= least {
                    found.push(vec![i, j, k]);
                }
                progress.add(both.len() as u64 / 64)?;
            }
        }
    }
    Ok(found)
}

/// Mean length of a part, in bytes: its end is where a rolling hash has these bits zero.
const CUT: u64 = (8 << 10) - 1;
/// Bytes of the stream that are generated at a time.
const BUFFER: usize = 1 << 20;
/// Different pieces of the stream.
const PIECES: u64 = 1 << 16;

/// A stream whose equal parts are stored once. What is stored is not read again until it is overwritten, so most of the
/// memory is idle.
pub fn dedup(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let mut random = random(bytes);
    let mut store = vec![0; fitting(bytes, 0.95, 1)];
    Contents::new(bytes).fill(&mut store);
    let mut deduplicated = Deduplicated { store, end: 0, places: HashMap::new() };
    let mut buffer = vec![0; BUFFER];
    progress.add(0)?;
    loop {
        for piece in buffer.chunks_mut(BUFFER / 16) {
            // One piece of 64 is rarely repeated, so the store fills at some MiB a second.
            let kinds = if random.next_u32().is_multiple_of(64) { PIECES } else { 64 };
            Contents::new(random.next_u64() % kinds).fill(piece);
        }
        deduplicated.add(&buffer);
        progress.add(BUFFER as u64)?;
    }
}

struct Deduplicated {
    store: Vec<u8>,
    end: usize,
    /// by fingerprint
    places: HashMap<u64, usize>,
}

impl Deduplicated {
    /// Stores the parts that are not there yet.
    fn add(&mut self, data: &[u8]) {
        for part in parts(data) {
            let fingerprint = part.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            });
            if self.places.contains_key(&fingerprint) || part.len() > self.store.len() {
                continue;
            }
            if self.end + part.len() > self.store.len() {
                // What is overwritten is forgotten, all at once.
                self.end = 0;
                self.places.clear();
            }
            self.store[self.end..self.end + part.len()].copy_from_slice(part);
            self.places.insert(fingerprint, self.end);
            self.end += part.len();
        }
    }
}

/// Parts whose ends depend on the bytes before them, so that equal data has equal parts wherever it begins.
fn parts(data: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut begin, mut hash) = (Vec::new(), 0, 0u64);
    for (at, byte) in data.iter().enumerate() {
        // The 64 bytes before count: older ones are shifted out.
        hash = (hash << 1).wrapping_add((u64::from(*byte) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if hash >> 32 & CUT == 0 && at > begin + 1024 {
            parts.push(&data[begin..=at]);
            begin = at + 1;
        }
    }
    parts.push(&data[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> TouchCount {
        TouchCount::to(tempfile::tempfile().unwrap())
    }

    #[test]
    fn means_come_to_where_the_points_are() {
        let mut points = vec![[0.0; DIMENSIONS]; 100];
        points[50..].fill([8.0; DIMENSIONS]);
        let centres = vec![[1.0; DIMENSIONS], [5.0; DIMENSIONS], [100.0; DIMENSIONS]];
        let found = means(&points, &centres, &mut progress()).unwrap();
        assert_eq!(found, [[0.0; DIMENSIONS], [8.0; DIMENSIONS], [100.0; DIMENSIONS]]);
    }

    #[test]
    fn sets_that_occur_often() {
        let mut transactions = vec![[4000; ITEMS]; 130];
        for transaction in &mut transactions[..70] {
            transaction[..3].copy_from_slice(&[2, 5, 9]);
        }
        transactions[100][..2].copy_from_slice(&[2, 3]);
        let mut bits = vec![vec![0; 3]; 12];
        mark(&transactions, 1, &mut bits, &mut progress()).unwrap();
        let found = frequent(&bits, 60, &mut progress()).unwrap();
        assert_eq!(found, [vec![1, 4], vec![1, 4, 8], vec![1, 8], vec![4, 8]]);
        assert!(frequent(&bits, 71, &mut progress()).unwrap().is_empty());
    }

    #[test]
    fn equal_data_is_stored_once_wherever_it_begins() {
        let mut data = vec![0; 200_000];
        random(1).fill_bytes(&mut data);
        let mut store = Deduplicated { store: vec![0; 1 << 20], end: 0, places: HashMap::new() };
        store.add(&data);
        assert_eq!((store.end, &store.store[..data.len()]), (data.len(), &data[..]));
        store.add(&data);
        assert_eq!(store.end, data.len());
        store.add(&data[777..]);
        assert!(store.end < data.len() + data.len() / 4, "{}", store.end);
        let lengths: Vec<usize> = parts(&data).iter().map(|part| part.len()).collect();
        assert!((10..50).contains(&lengths.len()), "{lengths:?}");
    }
}
