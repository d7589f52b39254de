//! The same as sites.c, with vectors, boxes, strings and iterators.

use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;

macro_rules! sites {
    ($($name:ident $number:literal)*) => {
        $(
            #[inline(never)]
            fn $name(size: usize) -> Vec<u8> {
                // Functions that differ in nothing would become one.
                let value = $number + 1;
                match $number % 4 {
                    0 => vec![value; size],
                    1 => {
                        let mut memory = Vec::with_capacity(size);
                        memory.extend((0..size).map(|i| (i as u8).wrapping_mul(value)));
                        memory
                    }
                    2 => vec![value; size].into_boxed_slice().into_vec(),
                    _ => char::from(value).to_string().repeat(size).into_bytes(),
                }
            }
        )*
        const SITES: &[fn(usize) -> Vec<u8>] = &[$($name),*];
    };
}

sites! {
    site_0 0 site_1 1 site_2 2 site_3 3 site_4 4 site_5 5 site_6 6 site_7 7 site_8 8 site_9 9
    site_10 10 site_11 11 site_12 12 site_13 13 site_14 14 site_15 15 site_16 16 site_17 17 site_18 18 site_19 19
}

type Site = (fn(usize) -> Vec<u8>, usize, bool);

fn fill(sites: &[Site], rate: f64) -> Vec<(Vec<u8>, bool)> {
    let filled = |&(fill, size, hot): &Site| {
        let memory = fill(size);
        thread::sleep(Duration::from_secs_f64(size as f64 / rate));
        (memory, hot)
    };
    sites.iter().map(filled).collect()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let rate = words.next().unwrap().parse::<f64>().unwrap() * (1 << 20) as f64;
    let site = |(word, fill): (String, &fn(usize) -> Vec<u8>)| {
        let (kib, hot) = word.split_once(':').unwrap();
        (*fill, kib.parse::<usize>().unwrap() << 10, hot == "1")
    };
    let mut sites: Vec<Site> = words.zip(SITES).map(site).collect();
    assert_eq!(sites.len(), SITES.len());
    let last = sites.split_off(SITES.len() / 2);
    let mut all = fill(&sites, rate);
    all.extend(thread::spawn(move || fill(&last, rate)).join().unwrap());
    loop {
        for (memory, _) in all.iter_mut().filter(|(_, hot)| *hot) {
            for at in (0..memory.len()).step_by(PAGE) {
                let byte = &raw mut memory[at];
                // SAFETY: the pointer is that of an element, which nothing else refers to.
                unsafe { byte.write_volatile(byte.read_volatile().wrapping_add(1)) };
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}
