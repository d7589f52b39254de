//! The common style of all pictures: size, colours and pens.

use super::color::Rgb;
use super::font::Weight;
use super::picture::{Anchor, Pen, Picture};
use super::words;
use crate::basis::Basis;

pub(super) const WIDTH: usize = 1200;
/// Left border of the plots, and their total width.
pub(super) const LEFT: usize = 120;
pub(super) const PLOT: usize = 1040;
/// Height above the first plot.
pub(super) const HEAD: usize = 84;

pub(super) const PAPER: Rgb = [255, 255, 255];
pub(super) const INK: Rgb = [0x1f, 0x24, 0x2e];
pub(super) const QUIET: Rgb = [0x5c, 0x65, 0x73];
/// Colours of the stripes where a damaged record has no data.
pub(super) const DAMAGED: [Rgb; 2] = [[0xd6, 0xf0, 0xee], [0x00, 0x7a, 0x78]];
pub(super) const LINE_COLOR: Rgb = [0xc4, 0xca, 0xd3];

pub(super) const HEADING: Pen = Pen { size: 22.0, weight: Weight::SemiBold, color: INK };
pub(super) const NAME_PEN: Pen = Pen { size: 14.0, weight: Weight::SemiBold, color: INK };
pub(super) const NOTE_PEN: Pen = Pen { size: 13.0, weight: Weight::Regular, color: QUIET };
pub(super) const LABEL: Pen = Pen { size: 13.0, weight: Weight::Regular, color: INK };

/// The title, or `otherwise` if it is empty, and a line below it.
pub(super) fn heading(picture: &mut Picture, title: &str, otherwise: &str, note: &str) {
    let title = if title.is_empty() { otherwise } else { title };
    let title = picture.fonts.fit(title, HEADING.size, HEADING.weight, PLOT as f32);
    picture.text((LEFT as f32, 44.0), Anchor::Left, HEADING, &title);
    picture.text((LEFT as f32, 69.0), Anchor::Left, NOTE_PEN, note);
}

/// The basis of the picture, in two lines at its bottom.
pub(super) fn footer(picture: &mut Picture, basis: &Basis) {
    let end = picture.size.1 as f32;
    let lines = [
        format!("{}. {}.", words::thresholds(basis), words::unknown(basis)),
        format!("{}.", words::look(basis)),
    ];
    let gaps = words::gaps(&basis.gaps);
    if !gaps.is_empty() {
        let pen = Pen { color: DAMAGED[1], ..NAME_PEN };
        let gaps = picture.fonts.fit(&format!("{gaps}."), pen.size, pen.weight, PLOT as f32);
        picture.text((LEFT as f32, 18.0), Anchor::Left, pen, &gaps);
    }
    for (line, up) in lines.iter().zip([34.0, 14.0]) {
        let (size, weight) = (NOTE_PEN.size, NOTE_PEN.weight);
        let line = picture.fonts.fit_sentences(line, size, weight, PLOT as f32);
        picture.text((LEFT as f32, end - up), Anchor::Left, NOTE_PEN, &line);
    }
}

/// Crossed stripes, in colours that do not occur in the heat scale.
pub(super) fn damaged(x: usize, y: usize) -> Rgb {
    DAMAGED[usize::from((x + y) % 8 < 2 || (x + 7 * y) % 8 < 2)]
}

/// A patch of a colour in a legend, and its name; returns the position of the next one.
pub(super) fn swatch(
    picture: &mut Picture,
    (x, y): (usize, usize),
    text: &str,
    color: impl Fn(usize, usize) -> Rgb,
) -> usize {
    picture.fill((x, y), (26, 14), color);
    picture.frame((x, y), (26, 14), LINE_COLOR);
    let end = picture.text((x as f32 + 34.0, y as f32 + 12.0), Anchor::Left, LABEL, text);
    end as usize + 28
}
