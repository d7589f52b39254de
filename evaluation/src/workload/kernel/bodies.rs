//! Bodies in space: the forces between them by a tree (Barnes and Hut, 1986), and rays through a field of spheres.

use anyhow::Result;
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::counting::TouchCount;
use super::{fitting, random};

type Vector = [f32; 3];

/// A body of the simulation.
#[derive(Debug, Clone, Copy, Default)]
struct Body {
    place: Vector,
    velocity: Vector,
    force: Vector,
    mass: f32,
}

/// A cube of space that holds several bodies: the sum of their masses, and their centre.
#[derive(Debug, Clone, Copy, Default)]
struct Cube {
    centre: Vector,
    mass: f32,
    /// for each eighth: none (0), a cube (its number + 1), or a body (the negative of its number + 1)
    parts: [i32; 8],
}

/// A part of this size relative to its distance counts as one body.
const OPENING: f32 = 0.8;
/// No cube is divided more often, so that bodies at one place do no harm.
const DEPTH: u32 = 24;
/// Bodies between two reports.
const STRIDE: usize = 256;

/// A simulation of bodies that attract each other: a tree is built at random, all bodies go through its upper part, and
/// then they move.
pub fn n_body(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let n = fitting(bytes, 0.55, size_of::<Body>());
    let mut random = random(bytes);
    let body = |random: &mut Xoshiro256PlusPlus| Body {
        place: [(); 3].map(|()| unit(random) * unit(random)),
        mass: 1.0 / n as f32,
        ..Body::default()
    };
    let mut bodies: Vec<Body> = (0..n).map(|_| body(&mut random)).collect();
    let mut cubes = Vec::with_capacity(fitting(bytes, 0.45, size_of::<Cube>()));
    progress.add(0)?;
    loop {
        build(&mut cubes, &bodies, progress)?;
        for at in 0..n {
            bodies[at].force = force(&cubes, &bodies, at);
            if at % STRIDE == 0 {
                progress.add(STRIDE as u64)?;
            }
        }
        bodies.iter_mut().for_each(step);
    }
}

/// A number from 0 to 1.
fn unit(random: &mut Xoshiro256PlusPlus) -> f32 {
    (random.next_u32() >> 8) as f32 / (1 << 24) as f32
}

fn step(body: &mut Body) {
    const TIME: f32 = 1e-3;
    for axis in 0..3 {
        body.velocity[axis] += body.force[axis] * TIME;
        body.place[axis] = (body.place[axis] + body.velocity[axis] * TIME).clamp(0.0, 1.0);
    }
}

/// The eighth of a cube at `corner` whose sides have twice the length of `half`, and the corner of that eighth.
fn eighth(place: Vector, corner: Vector, half: f32) -> (usize, Vector) {
    let mut part = 0;
    let corner: Vector = std::array::from_fn(|axis| {
        let upper = place[axis] >= corner[axis] + half;
        part |= usize::from(upper) << axis;
        if upper { corner[axis] + half } else { corner[axis] }
    });
    (part, corner)
}

fn build(cubes: &mut Vec<Cube>, bodies: &[Body], progress: &mut TouchCount) -> Result<()> {
    cubes.clear();
    cubes.push(Cube::default());
    for at in 0..bodies.len() {
        insert(cubes, bodies, at);
        if at % STRIDE == 0 {
            progress.add(STRIDE as u64)?;
        }
    }
    // Children have higher numbers than their parent.
    for at in (0..cubes.len()).rev() {
        let parts = cubes[at].parts.map(|part| part_of(cubes, bodies, part));
        let mass: f32 = parts.iter().map(|(_, mass)| mass).sum();
        let centre = std::array::from_fn(|axis| {
            parts.iter().map(|(place, mass)| place[axis] * mass).sum::<f32>()
                / mass.max(f32::MIN_POSITIVE)
        });
        cubes[at] = Cube { centre, mass, ..cubes[at] };
    }
    Ok(())
}

fn part_of(cubes: &[Cube], bodies: &[Body], part: i32) -> (Vector, f32) {
    let number = part.unsigned_abs() as usize;
    match part {
        0 => Default::default(),
        1.. => (cubes[number - 1].centre, cubes[number - 1].mass),
        _ => (bodies[number - 1].place, bodies[number - 1].mass),
    }
}

fn insert(cubes: &mut Vec<Cube>, bodies: &[Body], at: usize) {
    let (mut cube, mut corner, mut half) = (0, [0.0; 3], 0.5);
    for _ in 0..DEPTH {
        let (part, next) = eighth(bodies[at].place, corner, half);
        let found = cubes[cube].parts[part];
        if found > 0 {
            cube = found as usize - 1;
        } else if found < 0 {
            // The body there moves down into a new cube, and so does this one.
            let there = found.unsigned_abs() as usize - 1;
            let (below, _) = eighth(bodies[there].place, next, half / 2.0);
            let mut new = Cube::default();
            new.parts[below] = found;
            cubes.push(new);
            cubes[cube].parts[part] = number(cubes.len());
            cube = cubes.len() - 1;
        } else {
            cubes[cube].parts[part] = -number(at + 1);
            return;
        }
        (corner, half) = (next, half / 2.0);
    }
}

fn number(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

/// The sum of all attractions on a body.
fn force(cubes: &[Cube], bodies: &[Body], of: usize) -> Vector {
    let mut sum = [0.0; 3];
    let mut open = vec![(1, 1.0f32)];
    let place = bodies[of].place;
    while let Some((part, side)) = open.pop() {
        let (centre, mass) = part_of(cubes, bodies, part);
        let away: Vector = std::array::from_fn(|axis| centre[axis] - place[axis]);
        // Bodies that are very close do not fly apart.
        let square = away.iter().map(|d| d * d).sum::<f32>() + 1e-6;
        if part > 0 && side * side > OPENING * OPENING * square {
            let parts = cubes[part as usize - 1].parts;
            open.extend(parts.into_iter().filter(|p| *p != 0).map(|p| (p, side / 2.0)));
        } else {
            let pull = mass / (square * square.sqrt());
            sum.iter_mut().zip(away).for_each(|(sum, away)| *sum += pull * away);
        }
    }
    sum
}

/// Spheres in a cell of the field: place and radius of each.
type Cell = [[f32; 4]; 32];
/// Pixels in a row of the picture.
const WIDTH: usize = 512;
/// Cells that the camera passes in a picture.
const PACE: f32 = 0.25;

/// Pictures of a field of spheres, ray by ray, from a camera that flies through it. What it does not see is idle.
pub fn rays(bytes: u64, progress: &mut TouchCount) -> Result<()> {
    let mut random = random(bytes);
    let field = Field::new(fitting(bytes, 1.0, size_of::<Cell>()), &mut random);
    progress.add(0)?;
    let mut time = 0.0;
    loop {
        let middle = field.side as f32 / 2.0;
        // A circle around the middle; the camera looks ahead.
        let angle = time * PACE / middle;
        let eye =
            [middle + middle * 0.7 * angle.cos(), middle + middle * 0.7 * angle.sin(), middle];
        let ahead = [-angle.sin(), angle.cos(), 0.0];
        for row in 0..WIDTH {
            for column in 0..WIDTH {
                let [x, y] = [column, row].map(|i| i as f32 / WIDTH as f32 - 0.5);
                let ray = [ahead[0] + ahead[1] * x, ahead[1] - ahead[0] * x, y];
                std::hint::black_box(field.hit(eye, normalised(ray)));
            }
            progress.add(WIDTH as u64)?;
        }
        time += 1.0;
    }
}

fn normalised(v: Vector) -> Vector {
    let length = v.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    v.map(|x| x / length)
}

/// A cube of cells, each of size 1.
struct Field {
    side: usize,
    cells: Vec<Cell>,
}

impl Field {
    fn new(cells: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        let side = ((cells as f64).cbrt() as usize).max(1);
        let cell = |at: usize| {
            let corner = [at % side, at / side % side, at / side / side];
            [(); 32].map(|()| {
                let [x, y, z] = corner.map(|c| c as f32 + unit(random));
                [x, y, z, 0.02 + 0.02 * unit(random)]
            })
        };
        Field { side, cells: (0..side * side * side).map(cell).collect() }
    }

    /// The distance to the first sphere on a ray, and its number, cell by cell (Amanatides and Woo, 1987).
    fn hit(&self, eye: Vector, ray: Vector) -> Option<(f32, usize)> {
        let mut cell: [isize; 3] = eye.map(|x| x.floor() as isize);
        let step = ray.map(|d| if d < 0.0 { -1 } else { 1 });
        let per_cell = ray.map(|d| 1.0 / d.abs().max(1e-9));
        let mut next: Vector = std::array::from_fn(|i| {
            let border =
                if ray[i] < 0.0 { eye[i] - eye[i].floor() } else { 1.0 + eye[i].floor() - eye[i] };
            border * per_cell[i]
        });
        loop {
            let inside = cell.iter().all(|c| (0..self.side.cast_signed()).contains(c));
            let [x, y, z] = inside.then_some(cell)?.map(|c| c as usize);
            let at = (z * self.side + y) * self.side + x;
            let nearest = self.cells[at]
                .iter()
                .enumerate()
                .filter_map(|(i, sphere)| Some((distance(eye, ray, sphere)?, at * 32 + i)));
            let found = nearest.min_by(|a, b| a.0.total_cmp(&b.0));
            if found.is_some() {
                return found;
            }
            let axis = (0..3).min_by(|&a, &b| next[a].total_cmp(&next[b])).unwrap_or(0);
            cell[axis] += step[axis];
            next[axis] += per_cell[axis];
        }
    }
}

/// The distance at which a ray meets a sphere.
fn distance(eye: Vector, ray: Vector, &[x, y, z, radius]: &[f32; 4]) -> Option<f32> {
    let to = [x - eye[0], y - eye[1], z - eye[2]];
    let along: f32 = (0..3).map(|i| to[i] * ray[i]).sum();
    let beside = to.iter().map(|d| d * d).sum::<f32>() - along * along;
    let inside = radius * radius - beside;
    let distance = along - inside.max(0.0).sqrt();
    (inside > 0.0 && distance > 0.0).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(n: usize) -> Vec<Body> {
        let mut random = random(7);
        let place = |random: &mut _| [(); 3].map(|()| unit(random));
        (0..n).map(|_| Body { place: place(&mut random), mass: 1.0, ..Body::default() }).collect()
    }

    #[test]
    fn the_tree_pulls_as_all_bodies_do() {
        let bodies = bodies(500);
        let mut cubes = Vec::new();
        build(&mut cubes, &bodies, &mut TouchCount::to(tempfile::tempfile().unwrap())).unwrap();
        assert!((cubes[0].mass - 500.0).abs() < 0.1, "{}", cubes[0].mass);
        let size = |v: Vector| v.iter().map(|x| x * x).sum::<f32>().sqrt();
        let errors = (0..bodies.len()).map(|of| {
            let mut exact = [0.0f32; 3];
            for body in &bodies {
                let away: Vector = std::array::from_fn(|i| body.place[i] - bodies[of].place[i]);
                let square = away.iter().map(|d| d * d).sum::<f32>() + 1e-6;
                (0..3).for_each(|i| exact[i] += away[i] / (square * square.sqrt()));
            }
            let found = force(&cubes, &bodies, of);
            size(std::array::from_fn(|i| found[i] - exact[i])) / size(exact)
        });
        let mut errors: Vec<f32> = errors.collect();
        errors.sort_by(f32::total_cmp);
        assert!(errors[errors.len() / 2] < 0.03, "{}", errors[errors.len() / 2]);
    }

    #[test]
    fn bodies_at_one_place_end_the_tree() {
        let same = vec![Body { place: [0.3; 3], mass: 1.0, ..Body::default() }; 5];
        let mut cubes = Vec::new();
        build(&mut cubes, &same, &mut TouchCount::to(tempfile::tempfile().unwrap())).unwrap();
        assert!(cubes.len() <= DEPTH as usize + 1, "{}", cubes.len());
    }

    #[test]
    fn a_ray_meets_the_nearest_sphere() {
        let field = Field::new(64, &mut random(3));
        let (eye, mut met) = ([2.0, 1.9, 0.1], 0);
        for i in 0..1000_u16 {
            let angle = f32::from(i) / 1000.0;
            let ray = normalised([angle - 0.5, 0.3 * angle, 1.0]);
            let all = field.cells.iter().flatten().filter_map(|s| distance(eye, ray, s));
            let nearest = all.min_by(f32::total_cmp);
            let found = field.hit(eye, ray).map(|(distance, _)| distance);
            // A sphere may reach into a cell that it does not belong to.
            let close = found.zip(nearest).is_some_and(|(a, b)| (a - b).abs() < 0.2);
            met += usize::from(close || found == nearest);
        }
        assert!(met > 950, "{met} of 1000");
    }
}
