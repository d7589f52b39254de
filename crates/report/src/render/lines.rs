//! Lines as a picture.

use super::RenderError;
use super::axis::{Tick, time_ticks, value_ticks};
use super::color::{self, Rgb};
use super::picture::{Anchor, Paint, Picture};
use super::style::{
    HEAD, INK, LABEL, LEFT, LINE_COLOR, NAME_PEN, NOTE_PEN, PAPER, PLOT, QUIET, WIDTH, heading,
    swatch,
};
use crate::lines::{ChartLine, Lines, Plot};

/// Heights in pixels: of a plot, of its name above it, and of the space below the last one.
const HEIGHT: usize = 200;
const ABOVE: usize = 34;
const FOOT: usize = 130;
/// Width of a line, and radius of a dot.
const PEN: f32 = 2.2;
const RADIUS: usize = 5;
/// Colours of the first lines in a plot; further lines have the colour of text.
const COLORS: [f64; 4] = [0.2, 0.62, 0.8, 0.4];

/// Height of a name's background, and the part of it above the baseline.
const NAME_HEIGHT: f32 = 16.0;
const NAME_ASCENT: f32 = 12.0;

/// A rectangle, from its upper left to its lower right corner.
#[derive(Clone, Copy)]
struct Area((f32, f32), (f32, f32));

impl Area {
    fn overlaps(&self, other: &Area) -> bool {
        let Area((left, top), (right, bottom)) = *other;
        self.0.0 < right && left < self.1.0 && self.0.1 < bottom && top < self.1.1
    }

    fn is_within(&self, other: &Area) -> bool {
        let Area((left, top), (right, bottom)) = *other;
        self.0.0 >= left && self.1.0 <= right && self.0.1 >= top && self.1.1 <= bottom
    }
}

/// Places of a name beside its dot, the best first: the part of the name that is left of the anchor, and the position of
/// the anchor relative to the dot. Where a line rises, it is neither above on the left nor below on the right.
const PLACES: [(f32, f32, f32); 14] = [
    (1.0, -9.0, -9.0),
    (0.0, 9.0, 17.0),
    (0.5, 0.0, -11.0),
    (0.5, 0.0, 21.0),
    (0.0, 9.0, -9.0),
    (1.0, -9.0, 17.0),
    (1.0, -11.0, 5.0),
    (0.0, 11.0, 5.0),
    (0.5, 0.0, -27.0),
    (0.5, 0.0, 33.0),
    (0.0, 0.0, -27.0),
    (1.0, 0.0, 33.0),
    (1.0, 0.0, -27.0),
    (0.0, 0.0, 33.0),
];

/// Lines as a picture.
///
/// # Errors
/// If the built-in font cannot be read.
pub fn lines_picture(lines: &Lines) -> Result<Picture, RenderError> {
    let plots = lines.plots.len().max(1);
    let bottom = HEAD + plots * (ABOVE + HEIGHT);
    let mut picture = Picture::new((WIDTH, bottom + FOOT), PAPER)?;
    heading(&mut picture, &lines.title, "Lines", &lines.note);
    for (i, plot) in lines.plots.iter().enumerate() {
        draw(&mut picture, lines, plot, HEAD + i * (ABOVE + HEIGHT));
    }
    below(&mut picture, lines, bottom);
    Ok(picture)
}

fn draw(picture: &mut Picture, lines: &Lines, plot: &Plot, above: usize) {
    let (name_y, top) = ((above + 22) as f32, above + ABOVE);
    let end = picture.text((LEFT as f32, name_y), Anchor::Left, NAME_PEN, &plot.name);
    let mut x = end as usize + 28;
    for (i, line) in plot.lines.iter().enumerate().filter(|l| !is_dot(l.1)) {
        x = swatch(picture, (x, above + 10), &line.name, |_, _| color_of(i));
    }
    let has_dots = lines.plots.iter().flat_map(|p| &p.lines).any(is_dot);
    let room = if has_dots { 1.2 } else { 1.06 };
    let most = (lines.top() * room).max(1e-9);
    let y = |value: f64| ((top + HEIGHT) as f64 - value / most * HEIGHT as f64) as f32;
    for tick in value_ticks(most, 4) {
        let at = y(tick.at * most);
        picture.rect((LEFT, at as usize), (PLOT, 1), Paint { color: QUIET, part: 0.16 });
        picture.text((LEFT as f32 - 12.0, at + 5.0), Anchor::Right, LABEL, &tick.label);
    }
    let (from, to) = lines.span();
    for (i, line) in plot.lines.iter().enumerate().filter(|l| !is_dot(l.1)).rev() {
        let value = |x: usize| line.at(from + (to - from) * x as f64 / (PLOT - 1) as f64).map(y);
        let spans = (0..PLOT).map(|x| value(x).map(|here| stroke(here, value(x + 1))));
        picture.columns(LEFT, spans.collect(), color_of(i));
    }
    picture.frame((LEFT, top), (PLOT, HEIGHT), LINE_COLOR);
    let place = |line: &ChartLine| {
        let &(x, value) = line.points.first()?;
        let along = (x - from) / (to - from) * (PLOT - 1) as f64;
        Some((LEFT as f32 + along as f32, y(value)))
            .filter(|at| at.0.is_finite() && at.1.is_finite())
    };
    let dots = plot.lines.iter().filter(|l| is_dot(l));
    let dots: Vec<_> = dots.filter_map(|l| Some((place(l)?, l.name.as_str()))).collect();
    dots.iter().for_each(|(at, _)| dot(picture, *at));
    let room = Area((LEFT as f32, top as f32), (WIDTH as f32, (top + HEIGHT) as f32));
    names(picture, &dots, &room);
}

fn is_dot(line: &ChartLine) -> bool {
    line.points.len() == 1
}

fn dot(picture: &mut Picture, (x, y): (f32, f32)) {
    let left = (x.round() as usize).saturating_sub(RADIUS);
    let radius = RADIUS as f32;
    let half = |i: usize| (radius * radius - (i as f32 - radius).powi(2)).sqrt();
    let spans = (0..=2 * RADIUS).map(|i| Some((y - half(i), y + half(i))));
    picture.columns(left, spans.collect(), INK);
}

/// The names of dots, on a background that separates them from lines. A name for which there is no free place within
/// `room` is left out.
fn names(picture: &mut Picture, dots: &[((f32, f32), &str)], room: &Area) {
    let radius = RADIUS as f32;
    let around = |(x, y): (f32, f32)| Area((x - radius, y - radius), (x + radius, y + radius));
    let mut taken: Vec<Area> = dots.iter().map(|(at, _)| around(*at)).collect();
    for (i, &((x, y), name)) in dots.iter().enumerate() {
        let width = picture.fonts.width(name, LABEL.size, LABEL.weight);
        // Neighbours take turns, because dots may be close to each other.
        let mut places = PLACES;
        places[..2].rotate_left(i % 2);
        let mut areas = places.iter().map(|(part, along, up)| {
            let (left, top) = (x + along - part * width, y + up - NAME_ASCENT);
            Area((left, top), (left + width, top + NAME_HEIGHT))
        });
        let is_free = |area: &Area| !taken.iter().any(|other| other.overlaps(area));
        let Some(area) = areas.find(|area| area.is_within(room) && is_free(area)) else { continue };
        let Area((x, top), _) = area;
        let ground = (width as usize + 2, NAME_HEIGHT as usize);
        picture.rect((x as usize, top as usize), ground, Paint { color: PAPER, part: 0.8 });
        picture.text((x, top + NAME_ASCENT), Anchor::Left, LABEL, name);
        taken.push(area);
    }
}

/// The part of a pixel column that a line covers, from its height there to its height in the next column.
fn stroke(here: f32, next: Option<f32>) -> (f32, f32) {
    let next = next.unwrap_or(here);
    (here.min(next) - PEN / 2.0, here.max(next) + PEN / 2.0)
}

fn below(picture: &mut Picture, lines: &Lines, bottom: usize) {
    let (from, to) = lines.span();
    let mark =
        |(x, label): &(f64, String)| Tick { at: (x - from) / (to - from), label: label.clone() };
    let ticks: Vec<Tick> = match lines.marks.is_empty() {
        true => time_ticks(from, to, 9).0,
        false => lines.marks.iter().map(mark).filter(|t| (0.0..=1.0).contains(&t.at)).collect(),
    };
    for tick in ticks {
        let x = LEFT + ((tick.at * PLOT as f64) as usize).min(PLOT - 1);
        picture.rect((x, bottom + 1), (1, 5), LINE_COLOR);
        picture.text((x as f32, (bottom + 22) as f32), Anchor::Middle, LABEL, &tick.label);
    }
    let middle = (LEFT + PLOT / 2) as f32;
    let x = match lines.marks.is_empty() {
        true => format!("{}, {}", lines.x, time_ticks(from, to, 9).1),
        false => lines.x.clone(),
    };
    picture.text((middle, (bottom + 43) as f32), Anchor::Middle, NOTE_PEN, &x);
    picture.text(
        (LEFT as f32, (bottom + 74) as f32),
        Anchor::Left,
        LABEL,
        &format!("upwards: {}", lines.y),
    );
    let basis = picture.fonts.fit(&lines.basis, NOTE_PEN.size, NOTE_PEN.weight, PLOT as f32);
    picture.text((LEFT as f32, (bottom + FOOT - 14) as f32), Anchor::Left, NOTE_PEN, &basis);
}

fn color_of(i: usize) -> Rgb {
    COLORS.get(i).map_or(INK, |&at| color::at(at))
}

#[cfg(test)]
mod tests {
    use super::super::picture::Item;
    use super::*;

    fn lines() -> Lines {
        let line = |name: &str, points: &[(f64, f64)]| ChartLine {
            name: name.into(),
            points: points.into(),
        };
        let plot = Plot {
            name: "one".into(),
            lines: vec![
                line("up", &[(0.0, 0.0), (10.0, 100.0)]),
                line("flat", &[(0.0, 50.0), (5.0, 50.0)]),
            ],
        };
        let other = Plot { name: "two".into(), lines: Vec::new() };
        Lines {
            plots: vec![plot, other],
            title: "Title".into(),
            y: "age, s".into(),
            ..Lines::default()
        }
    }

    #[test]
    fn names_and_lines_are_there() {
        let svg = lines_picture(&lines()).unwrap().svg().unwrap();
        for text in ["Title", "one", "two", "up", "flat", "upwards: age, s"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(lines_picture(&lines()).unwrap().png().unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn a_single_point_is_a_dot_with_its_name_beside_it() {
        let mut lines = lines();
        let dot = |name: &str, x| ChartLine { name: name.into(), points: vec![(x, 40.0)] };
        lines.plots[0].lines.extend([dot("here", 2.0), dot("there", 8.0), dot("off", f64::NAN)]);
        let picture = lines_picture(&lines).unwrap();
        let place = |name: &str| {
            let texts = picture.items.iter().find_map(|i| match i {
                Item::Text { at, text, .. } if text == name => Some(at.0),
                _ => None,
            });
            texts.unwrap()
        };
        let along = |x: f32| LEFT as f32 + x / 10.0 * PLOT as f32;
        assert!(place("here") < along(2.0), "around it");
        assert!(place("there") > along(8.0), "behind it");
        assert!(picture.png().is_ok());
    }

    #[test]
    fn names_of_dots_overlap_neither_each_other_nor_dots_nor_the_edge() {
        // The settings of the tutorial on `isotherm whatif`.
        let dots = [
            (39.6, 88.0),
            (51.0, 137.0),
            (63.4, 184.0),
            (77.8, 232.0),
            (90.6, 296.0),
            (102.9, 365.0),
            (115.3, 437.0),
            (125.9, 515.0),
            (134.8, 585.0),
            (141.8, 655.0),
            (147.7, 720.0),
            (152.7, 790.0),
            (156.9, 850.0),
        ];
        let dot = |(i, at)| ChartLine { name: format!("setting {i} s"), points: vec![at] };
        let lines = dots.into_iter().enumerate().map(dot).collect();
        let plots = vec![Plot { name: String::new(), lines }];
        let picture = lines_picture(&Lines { plots, ..Lines::default() }).unwrap();
        let areas: Vec<Area> = picture
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Text { at: (x, base), text, .. } if text.starts_with("setting") => {
                    let width = picture.fonts.width(text, LABEL.size, LABEL.weight);
                    let top = base - NAME_ASCENT;
                    Some(Area((*x, top), (x + width, top + NAME_HEIGHT)))
                }
                _ => None,
            })
            .collect();
        assert_eq!(areas.len(), 13);
        let end = (HEAD + ABOVE + HEIGHT) as f32;
        let room = Area((LEFT as f32, 0.0), (WIDTH as f32, end));
        for (i, area) in areas.iter().enumerate() {
            assert!(area.is_within(&room), "{i}");
            assert!(areas[..i].iter().all(|other| !other.overlaps(area)), "{i}");
        }
    }

    #[test]
    fn nothing_can_be_drawn_too() {
        assert!(lines_picture(&Lines::default()).unwrap().png().is_ok());
        let nan =
            ChartLine { name: String::new(), points: vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)] };
        let plots = vec![Plot { name: String::new(), lines: vec![nan] }];
        assert!(lines_picture(&Lines { plots, ..Lines::default() }).unwrap().png().is_ok());
    }
}
