//! Accesses that follow the data: a radix sort, a breadth-first traversal, and a placement by simulated annealing, like
//! those of SPLASH-2, Graph500 and PARSEC.

use anyhow::Result;
use rand_core::Rng;

use super::super::counting::TouchCount;
use super::{BATCH_WORDS, RANDOM_BITS, fitting, random};

/// Bits of a digit.
const DIGIT: u32 = 11;

/// A radix sort: each pass reads one half of the memory in order, and writes the other half at 2048 places.
pub fn radix(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let n = fitting(bytes, 0.5, size_of::<u64>());
    let mut random = random(bytes);
    let (mut from, mut to) = (vec![0; n], vec![0; n]);
    from.fill_with(|| random.next_u64() & RANDOM_BITS);
    to.fill_with(|| random.next_u64() & RANDOM_BITS);
    progress.add(0)?;
    loop {
        for digit in 0..RANDOM_BITS.count_ones() / DIGIT {
            by_digit(&from, digit, &mut to, progress)?;
            (from, to) = (to, from);
        }
        // Other numbers to sort.
        from.iter_mut().for_each(|key| *key = key.wrapping_mul(0x9e37_79b9) & RANDOM_BITS);
    }
}

/// Sorts by one digit. Numbers with the same digit keep their order.
fn by_digit(from: &[u64], digit: u32, to: &mut [u64], progress: &mut TouchCount) -> Result<()> {
    let of = |key: u64| (key >> (digit * DIGIT)) as usize & ((1 << DIGIT) - 1);
    let mut places = vec![0; 1 << DIGIT];
    for batch in from.chunks(BATCH_WORDS) {
        batch.iter().for_each(|key| places[of(*key)] += 1);
        progress.add(batch.len() as u64 / 2)?;
    }
    let mut sum = 0;
    for place in &mut places {
        sum += std::mem::replace(place, sum);
    }
    for batch in from.chunks(BATCH_WORDS) {
        for &key in batch {
            let place = &mut places[of(key)];
            to[*place] = key;
            *place += 1;
        }
        progress.add(batch.len() as u64)?;
    }
    Ok(())
}

/// Edges of a vertex.
const DEGREE: usize = 16;

/// Breadth-first traversals of a graph, from one vertex after another.
pub fn traversal(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    // Per vertex: its edges, its distance, and its place in the queue.
    let n = fitting(bytes, 1.0, size_of::<u32>() * (DEGREE + 2));
    let mut random = random(bytes);
    let mut edges = vec![0u32; n * DEGREE];
    edges.fill_with(|| {
        let [x, y] = [random.next_u32(), random.next_u32()].map(|r| f64::from(r) / 2f64.powi(32));
        // Vertices of low numbers have more.
        (x * y * n as f64) as u32
    });
    let (mut distances, mut queue) = (vec![0; n], vec![0; n]);
    progress.add(0)?;
    loop {
        let start = random.next_u64() as usize % n;
        breadth_first(&edges, start, &mut distances, &mut queue, progress)?;
    }
}

/// The distance of each vertex from `start`; `u32::MAX` for those that cannot be reached.
fn breadth_first(
    edges: &[u32],
    start: usize,
    distances: &mut [u32],
    queue: &mut [u32],
    progress: &mut TouchCount,
) -> Result<()> {
    distances.fill(u32::MAX);
    distances[start] = 0;
    queue[0] = start as u32;
    let (mut next, mut end) = (0, 1);
    while next < end {
        let vertex = queue[next] as usize;
        next += 1;
        for &to in &edges[vertex * DEGREE..(vertex + 1) * DEGREE] {
            if distances[to as usize] == u32::MAX {
                distances[to as usize] = distances[vertex] + 1;
                queue[end] = to;
                end += 1;
            }
        }
        if next % (BATCH_WORDS / DEGREE) == 0 {
            progress.add(BATCH_WORDS as u64)?;
        }
    }
    Ok(())
}

/// An element of a circuit: its place, and the elements that it is connected with.
#[derive(Debug, Clone, Copy)]
struct Element {
    place: u32,
    connected: [u32; 7],
}

/// A placement of a circuit's elements by simulated annealing: random pairs of elements swap places if that shortens
/// their connections, and at first also if it does not.
pub fn anneal(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let n = fitting(bytes, 1.0, size_of::<Element>());
    let mut random = random(bytes);
    let element = |place: usize| Element {
        place: place as u32,
        connected: [(); 7].map(|()| (random.next_u64() % n as u64) as u32),
    };
    let mut elements: Vec<Element> = (0..n).map(element).collect();
    let width = n.isqrt().max(1) as u32;
    let mut random = super::random(bytes + 1);
    progress.add(0)?;
    let mut temperature = f64::from(width);
    loop {
        for _ in 0..BATCH_WORDS / 8 {
            let [a, b] = [random.next_u64(), random.next_u64()].map(|r| r as usize % n);
            let longer = longer_by(&elements, width, a, b);
            let chance = f64::from(random.next_u32()) / 2f64.powi(32);
            if longer <= 0.0 || chance < (-longer / temperature).exp() {
                swap(&mut elements, a, b);
            }
        }
        temperature *= 0.9999;
        progress.add(BATCH_WORDS as u64)?;
    }
}

fn swap(elements: &mut [Element], a: usize, b: usize) {
    let [at_a, at_b] = [a, b].map(|i| elements[i].place);
    elements[a].place = at_b;
    elements[b].place = at_a;
}

/// By how much the connections of two elements become longer if they swap places.
fn longer_by(elements: &[Element], width: u32, a: usize, b: usize) -> f64 {
    let [at_a, at_b] = [a, b].map(|i| elements[i].place);
    let of = |of: usize, place: u32| -> f64 {
        let connected = elements[of].connected.iter();
        connected.map(|&to| f64::from(apart(place, elements[to as usize].place, width))).sum()
    };
    of(a, at_b) + of(b, at_a) - of(a, at_a) - of(b, at_b)
}

/// The distance of two places on a board, along its rows and columns.
fn apart(a: u32, b: u32, width: u32) -> u32 {
    (a / width).abs_diff(b / width) + (a % width).abs_diff(b % width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> TouchCount {
        TouchCount::to(tempfile::tempfile().unwrap())
    }

    #[test]
    fn two_digits_sort() {
        let mut random = random(1);
        let keys: Vec<u64> = (0..5000).map(|_| random.next_u64() & RANDOM_BITS).collect();
        let (mut half, mut sorted) = (vec![0; 5000], vec![0; 5000]);
        by_digit(&keys, 0, &mut half, &mut progress()).unwrap();
        by_digit(&half, 1, &mut sorted, &mut progress()).unwrap();
        let mut expected = keys;
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(RANDOM_BITS.count_ones() % DIGIT, 0, "all bits belong to a digit");
    }

    /// A ring, in which each vertex has an edge to the next one only.
    #[test]
    fn distances_in_a_ring() {
        let edges: Vec<u32> = (0..10).flat_map(|i| [(i + 1) % 10; DEGREE]).collect();
        let (mut distances, mut queue) = (vec![7; 10], vec![0; 10]);
        breadth_first(&edges, 4, &mut distances, &mut queue, &mut progress()).unwrap();
        assert_eq!(distances, [6, 7, 8, 9, 0, 1, 2, 3, 4, 5]);
        let edges = vec![3; 10 * DEGREE];
        breadth_first(&edges, 4, &mut distances, &mut queue, &mut progress()).unwrap();
        assert_eq!((distances[3], distances[4], distances[5]), (1, 0, u32::MAX));
    }

    #[test]
    fn a_swap_changes_lengths_as_foreseen() {
        let mut random = random(2);
        let mut elements: Vec<Element> = (0..100)
            .map(|place| Element { place, connected: [(); 7].map(|()| random.next_u32() % 100) })
            .collect();
        // Only these two are connected, and not with each other.
        for element in elements.iter_mut().skip(2) {
            element.connected = [0; 7].map(|_| element.place);
        }
        elements[0].connected = [10, 20, 30, 40, 50, 60, 70];
        elements[1].connected = [15, 25, 35, 45, 55, 65, 75];
        let length = |elements: &[Element]| -> f64 {
            let of =
                |e: &Element| e.connected.map(|to| apart(e.place, elements[to as usize].place, 10));
            elements.iter().flat_map(of).map(f64::from).sum()
        };
        let (before, expected) = (length(&elements), longer_by(&elements, 10, 0, 1));
        swap(&mut elements, 0, 1);
        assert!((length(&elements) - before - expected).abs() < 1e-9);
        assert_eq!(apart(7, 29, 10), 4);
    }
}
