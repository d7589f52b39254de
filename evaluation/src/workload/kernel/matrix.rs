//! Dense matrices and grids: blocked LU factorisation, a fast Fourier transform, and a multigrid solver, like those of
//! SPLASH-2.

use std::f64::consts::PI;

use anyhow::Result;
use rand_core::Rng;

use super::super::counting::TouchCount;
use super::{RANDOM_BITS, fitting, random};

/// Side of a block. A block of 8 KiB fits into the first cache.
const SIDE: usize = 32;
type Block = [f64; SIDE * SIDE];
/// The systems that `lu` factors, one after the other.
const SYSTEMS: usize = 16;

/// A square matrix in blocks, row by row.
struct Blocked {
    /// blocks in a row
    side: usize,
    blocks: Vec<Block>,
}

/// LU factorisation of one matrix after the other. While one is factored, the others are idle.
pub fn lu(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let blocks = fitting(bytes, 1.0 / SYSTEMS as f64, size_of::<Block>());
    let side = blocks.isqrt();
    let matrix = || Blocked { side, blocks: vec![[0.0; SIDE * SIDE]; side * side] };
    let mut systems: Vec<Blocked> = (0..SYSTEMS).map(|_| matrix()).collect();
    let mut random = random(bytes);
    systems.iter_mut().for_each(|m| m.fill(|| (random.next_u64() & RANDOM_BITS) as f64));
    progress.add(0)?;
    loop {
        for matrix in &mut systems {
            matrix.factor(progress)?;
            matrix.fill(|| (random.next_u64() & RANDOM_BITS) as f64);
        }
    }
}

impl Blocked {
    /// Fills it with numbers, and a diagonal that needs no pivots.
    fn fill(&mut self, mut number: impl FnMut() -> f64) {
        let large = (RANDOM_BITS as f64) * (self.side * SIDE) as f64;
        for (at, block) in self.blocks.iter_mut().enumerate() {
            block.fill_with(&mut number);
            if at / self.side == at % self.side {
                (0..SIDE).for_each(|i| block[i * SIDE + i] += large);
            }
        }
    }

    /// Replaces the matrix by its factors. Counts updates of blocks.
    fn factor(&mut self, progress: &mut TouchCount) -> Result<()> {
        let side = self.side;
        for k in 0..side {
            let (above, below) = self.blocks.split_at_mut((k + 1) * side);
            let row = &mut above[k * side..];
            let Some((diagonal, right)) = row[k..].split_first_mut() else { continue };
            factor_block(diagonal);
            right.iter_mut().for_each(|block| solve_lower(diagonal, block));
            for row in below.chunks_mut(side) {
                solve_upper(diagonal, &mut row[k]);
                let left = row[k];
                for (block, upper) in row[k + 1..].iter_mut().zip(&*right) {
                    subtract_product(block, &left, upper);
                }
                progress.add((side - k) as u64)?;
            }
        }
        Ok(())
    }
}

fn factor_block(a: &mut Block) {
    for k in 0..SIDE {
        for i in k + 1..SIDE {
            a[i * SIDE + k] /= a[k * SIDE + k];
            for j in k + 1..SIDE {
                a[i * SIDE + j] -= a[i * SIDE + k] * a[k * SIDE + j];
            }
        }
    }
}

/// Solves L X = `b`, where L is the lower factor in `a`.
fn solve_lower(a: &Block, b: &mut Block) {
    for i in 1..SIDE {
        for k in 0..i {
            for j in 0..SIDE {
                b[i * SIDE + j] -= a[i * SIDE + k] * b[k * SIDE + j];
            }
        }
    }
}

/// Solves X U = `b`, where U is the upper factor in `a`.
fn solve_upper(a: &Block, b: &mut Block) {
    for row in b.chunks_mut(SIDE) {
        for k in 0..SIDE {
            row[k] /= a[k * SIDE + k];
            for j in k + 1..SIDE {
                row[j] -= row[k] * a[k * SIDE + j];
            }
        }
    }
}

fn subtract_product(c: &mut Block, a: &Block, b: &Block) {
    for (c, a) in c.chunks_exact_mut(SIDE).zip(a.chunks_exact(SIDE)) {
        for (a, b) in a.iter().zip(b.chunks_exact(SIDE)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c -= a * b);
        }
    }
}

/// A complex number.
type Complex = [f64; 2];

/// A fast Fourier transform of all of the memory, over and over: six steps, three of which transpose one half of the
/// memory into the other.
pub fn fft(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let points: usize = 1 << fitting(bytes, 0.5, size_of::<Complex>()).ilog2();
    let mut random = random(bytes);
    let mut number = || (random.next_u64() & RANDOM_BITS) as f64;
    let mut data: Vec<Complex> = (0..points).map(|_| [number(), number()]).collect();
    let mut other = vec![[0.0; 2]; points];
    progress.add(0)?;
    loop {
        six_steps(&mut data, &mut other, progress)?;
        // Without this, the numbers would grow for ever.
        let scale = 1.0 / (points as f64).sqrt();
        other.iter_mut().for_each(|z| *z = z.map(|part| part * scale));
        (data, other) = (other, data);
    }
}

/// The transform of `data`, into `to` (Bailey, FFTs in external or hierarchical memory, 1990).
fn six_steps(data: &mut [Complex], to: &mut [Complex], progress: &mut TouchCount) -> Result<()> {
    let rows: usize = 1 << (data.len().ilog2() / 2);
    let columns = data.len() / rows;
    transpose(data, columns, to, progress)?;
    for (column, points) in to.chunks_mut(rows).enumerate() {
        transform(points);
        for (row, point) in points.iter_mut().enumerate() {
            let angle = -2.0 * PI * (column * row) as f64 / data.len() as f64;
            *point = multiply(*point, [angle.cos(), angle.sin()]);
        }
        progress.add(rows as u64)?;
    }
    transpose(to, rows, data, progress)?;
    for points in data.chunks_mut(columns) {
        transform(points);
        progress.add(columns as u64)?;
    }
    transpose(data, columns, to, progress)
}

fn transpose(
    from: &[Complex],
    width: usize,
    to: &mut [Complex],
    progress: &mut TouchCount,
) -> Result<()> {
    let height = from.len() / width;
    for left in (0..width).step_by(SIDE) {
        for top in (0..height).step_by(SIDE) {
            for column in left..(left + SIDE).min(width) {
                for row in top..(top + SIDE).min(height) {
                    to[column * height + row] = from[row * width + column];
                }
            }
        }
        // A third of the time of a transform.
        progress.add((SIDE * height / 3) as u64)?;
    }
    Ok(())
}

/// The transform of 2^n points in place (Cooley and Tukey, 1965).
fn transform(points: &mut [Complex]) {
    let n = points.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits).min(usize::BITS - 1);
        if bits > 0 && i < j {
            points.swap(i, j);
        }
    }
    let mut length = 2;
    while length <= n {
        let angle = -2.0 * PI / length as f64;
        let step = [angle.cos(), angle.sin()];
        for part in points.chunks_exact_mut(length) {
            let mut turn = [1.0, 0.0];
            let (low, high) = part.split_at_mut(length / 2);
            for (a, b) in low.iter_mut().zip(high) {
                let turned = multiply(*b, turn);
                *b = [a[0] - turned[0], a[1] - turned[1]];
                *a = [a[0] + turned[0], a[1] + turned[1]];
                turn = multiply(turn, step);
            }
        }
        length *= 2;
    }
}

fn multiply(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// One level of the grid: values inside a border of zeros, and the right side of the equation.
struct Level {
    /// points in a row, with the border
    width: usize,
    values: Vec<f64>,
    right: Vec<f64>,
}

/// The sides of all grids are multiples of 2 to the power of this, plus one.
const LEVELS: u32 = 6;

/// A Poisson equation on a square, by V-cycles over grids each of which has a quarter of the points of the one below
/// it. The finest grid is idle while a coarse one is solved.
pub fn multigrid(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    // Two arrays a level, and a third as much for all coarser levels.
    let points = fitting(bytes, 0.75, 2 * size_of::<f64>());
    let mut grid = Grid::new(points);
    let mut random = random(bytes);
    grid.0[0].right.fill_with(|| (random.next_u64() & RANDOM_BITS) as f64);
    progress.add(0)?;
    loop {
        grid.cycle(0, progress)?;
    }
}

struct Grid(Vec<Level>);

impl Grid {
    /// With at most so many points on the finest level, if that is not too few.
    fn new(points: usize) -> Self {
        let step = 1 << LEVELS;
        let side = (points.isqrt() / step * step).max(step);
        let level = |l| {
            let width = (side >> l) + 1;
            Level { width, values: vec![0.0; width * width], right: vec![0.0; width * width] }
        };
        Grid((0..LEVELS).map(level).collect())
    }

    fn cycle(&mut self, level: usize, progress: &mut TouchCount) -> Result<()> {
        let (fine, coarse) = self.0.split_at_mut(level + 1);
        let fine = &mut fine[level];
        let Some(next) = coarse.first_mut() else {
            return (0..fine.width).try_for_each(|_| fine.smooth(progress));
        };
        fine.smooth(progress)?;
        next.values.fill(0.0);
        fine.restrict_to(next, progress)?;
        self.cycle(level + 1, progress)?;
        let (fine, coarse) = self.0.split_at_mut(level + 1);
        fine[level].correct_by(&coarse[0], progress)?;
        fine[level].smooth(progress)
    }
}

impl Level {
    fn inner(&self) -> std::ops::Range<usize> {
        1..self.width - 1
    }

    fn around(&self, at: usize) -> f64 {
        let v = &self.values;
        v[at - 1] + v[at + 1] + v[at - self.width] + v[at + self.width]
    }

    /// One pass of Gauss and Seidel, red points first.
    fn smooth(&mut self, progress: &mut TouchCount) -> Result<()> {
        for colour in 0..2 {
            for row in self.inner() {
                let first = 1 + (row + colour) % 2;
                for at in (row * self.width + first..(row + 1) * self.width - 1).step_by(2) {
                    self.values[at] = (self.around(at) + self.right[at]) / 4.0;
                }
                progress.add((self.width / 2) as u64)?;
            }
        }
        Ok(())
    }

    fn residual(&self, at: usize) -> f64 {
        self.right[at] + self.around(at) - 4.0 * self.values[at]
    }

    /// The residual at each second point and at its neighbours is the right side of the coarser level.
    fn restrict_to(&self, coarse: &mut Level, progress: &mut TouchCount) -> Result<()> {
        let weights = [(-1, 1.0), (0, 2.0), (1, 1.0)];
        for row in coarse.inner() {
            for column in coarse.inner() {
                let at = |dy: isize, dx: isize| {
                    (2 * row).wrapping_add_signed(dy) * self.width
                        + (2 * column).wrapping_add_signed(dx)
                };
                let near = weights.iter().flat_map(|y| weights.iter().map(move |x| (y, x)));
                let sum: f64 = near.map(|(y, x)| y.1 * x.1 * self.residual(at(y.0, x.0))).sum();
                // The mean by weights, for steps that are twice as long.
                coarse.right[row * coarse.width + column] = 4.0 * sum / 16.0;
            }
            progress.add(2 * self.width as u64)?;
        }
        Ok(())
    }

    /// Adds what the coarser level has found, linearly between its points.
    fn correct_by(&mut self, coarse: &Level, progress: &mut TouchCount) -> Result<()> {
        for row in self.inner() {
            for column in self.inner() {
                let at = |y: usize, x: usize| coarse.values[y * coarse.width + x];
                let [(top, bottom), (left, right)] = [row, column].map(|i| (i / 2, i.div_ceil(2)));
                let sum = at(top, left) + at(top, right) + at(bottom, left) + at(bottom, right);
                self.values[row * self.width + column] += sum / 4.0;
            }
            progress.add((self.width / 2) as u64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> TouchCount {
        TouchCount::to(tempfile::tempfile().unwrap())
    }

    #[test]
    fn the_factors_multiply_to_the_matrix() {
        let mut random = random(1);
        let mut matrix = Blocked { side: 3, blocks: vec![[0.0; SIDE * SIDE]; 9] };
        matrix.fill(|| (random.next_u64() & RANDOM_BITS) as f64);
        let before = matrix.blocks.clone();
        matrix.factor(&mut progress()).unwrap();
        let n = 3 * SIDE;
        let at = |blocks: &[Block], i: usize, j: usize| {
            blocks[i / SIDE * 3 + j / SIDE][i % SIDE * SIDE + j % SIDE]
        };
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let lower = |k| if k == i { 1.0 } else { at(&matrix.blocks, i, k) };
            let product: f64 = (0..=i.min(j)).map(|k| lower(k) * at(&matrix.blocks, k, j)).sum();
            let expected = at(&before, i, j);
            assert!((product - expected).abs() < 1e-6 * expected.abs().max(1.0), "{i}, {j}");
        }
    }

    #[test]
    fn the_transform_of_a_wave_is_one_peak() {
        let wave = |i: i32| [(2.0 * PI * 3.0 * f64::from(i) / 64.0).cos(), 0.0];
        let mut points: Vec<Complex> = (0..64).map(wave).collect();
        transform(&mut points);
        for (i, [real, imaginary]) in points.iter().enumerate() {
            let expected = if [3, 61].contains(&i) { 32.0 } else { 0.0 };
            assert!((real - expected).abs() < 1e-9 && imaginary.abs() < 1e-9, "{i}: {real}");
        }
        let mut one = [[5.0, 1.0]];
        transform(&mut one);
        assert_eq!(one, [[5.0, 1.0]]);
    }

    #[test]
    fn six_steps_are_one_transform() {
        let mut random = random(5);
        let mut data: Vec<Complex> = (0..512)
            .map(|_| [(random.next_u32() % 100).into(), (random.next_u32() % 100).into()])
            .collect();
        let mut expected = data.clone();
        transform(&mut expected);
        let mut found = vec![[0.0; 2]; data.len()];
        six_steps(&mut data, &mut found, &mut progress()).unwrap();
        for (a, b) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-6, "{a}, {b}");
        }
    }

    #[test]
    fn what_is_transposed_twice_is_as_before() {
        let from: Vec<Complex> = (0..70 * 33).map(|i| [f64::from(i), 0.0]).collect();
        let (mut there, mut back) = (vec![[0.0; 2]; from.len()], vec![[0.0; 2]; from.len()]);
        transpose(&from, 70, &mut there, &mut progress()).unwrap();
        assert_eq!(there[33][0], 1.0);
        transpose(&there, 33, &mut back, &mut progress()).unwrap();
        assert_eq!(back, from);
    }

    #[test]
    fn a_cycle_takes_away_most_of_the_residual() {
        let mut grid = Grid::new(129 * 129);
        let mut random = random(1);
        grid.0[0].right.fill_with(|| (random.next_u64() & RANDOM_BITS) as f64);
        let residual = |grid: &Grid| {
            let fine = &grid.0[0];
            let points = fine.inner().flat_map(|row| fine.inner().map(move |c| (row, c)));
            points.map(|(row, c)| fine.residual(row * fine.width + c).powi(2)).sum::<f64>().sqrt()
        };
        let mut before = residual(&grid);
        for _ in 0..3 {
            grid.cycle(0, &mut progress()).unwrap();
            let after = residual(&grid);
            assert!(after < before / 3.0, "{before} -> {after}");
            before = after;
        }
    }
}
