//! A picture as a list of what is drawn, which becomes a PNG or an SVG file.

use super::RenderError;
use super::color::Rgb;
use super::font::{Fonts, Weight};
use super::{raster, svg};

/// Where the point given for a text lies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// How text looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pen {
    pub size: f32,
    pub weight: Weight,
    pub color: Rgb,
}

/// A colour, and how much of it covers what is below, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paint {
    pub color: Rgb,
    pub part: f32,
}

impl From<Rgb> for Paint {
    fn from(color: Rgb) -> Self {
        Paint { color, part: 1.0 }
    }
}

/// One thing that is drawn. Places are in pixels from the upper left corner.
#[derive(Debug)]
pub(super) enum Item {
    /// a rectangle of one colour
    Rect { at: (usize, usize), size: (usize, usize), paint: Paint },
    /// a rectangle of pixels, line by line
    Pixels { at: (usize, usize), width: usize, pixels: Vec<Rgb> },
    /// In each column of pixels from `left` on, what lies between two heights (the upper one
    /// first), if anything.
    Columns { left: usize, spans: Vec<Option<(f32, f32)>>, paint: Paint },
    /// text, its baseline at a place, or upwards from there
    Text { at: (f32, f32), upward: bool, anchor: Anchor, pen: Pen, text: String },
}

/// What is drawn, the lowest first.
#[derive(Debug)]
pub struct Picture {
    pub(super) fonts: Fonts,
    pub(super) size: (usize, usize),
    pub(super) paper: Rgb,
    pub(super) items: Vec<Item>,
}

impl Picture {
    pub(super) fn new(size: (usize, usize), paper: Rgb) -> Result<Self, RenderError> {
        Ok(Picture { fonts: Fonts::new()?, size, paper, items: Vec::new() })
    }

    /// The bytes of a PNG file.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>, RenderError> {
        raster::png(self)
    }

    /// An SVG file. Its texts are shapes, so that it looks alike wherever it is shown.
    ///
    /// # Errors
    /// If pixels in it cannot be encoded.
    pub fn svg(&self) -> Result<String, RenderError> {
        svg::svg(self)
    }

    /// Each pixel of a rectangle by a function of its place.
    pub(super) fn fill(
        &mut self,
        at: (usize, usize),
        (width, height): (usize, usize),
        color: impl Fn(usize, usize) -> Rgb,
    ) {
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let pixels = places.map(|(x, y)| color(x, y)).collect();
        self.items.push(Item::Pixels { at, width, pixels });
    }

    pub(super) fn rect(
        &mut self,
        at: (usize, usize),
        size: (usize, usize),
        paint: impl Into<Paint>,
    ) {
        self.items.push(Item::Rect { at, size, paint: paint.into() });
    }

    /// A line of one pixel around a rectangle.
    pub(super) fn frame(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        color: Rgb,
    ) {
        self.rect((x - 1, y - 1), (width + 2, 1), color);
        self.rect((x - 1, y + height), (width + 2, 1), color);
        self.rect((x - 1, y), (1, height), color);
        self.rect((x + width, y), (1, height), color);
    }

    pub(super) fn columns(
        &mut self,
        left: usize,
        spans: Vec<Option<(f32, f32)>>,
        paint: impl Into<Paint>,
    ) {
        self.items.push(Item::Columns { left, spans, paint: paint.into() });
    }

    /// Text on a baseline; gives the place behind it.
    pub(super) fn text(&mut self, at: (f32, f32), anchor: Anchor, pen: Pen, text: &str) -> f32 {
        let width = self.fonts.width(text, pen.size, pen.weight);
        self.items.push(Item::Text { at, upward: false, anchor, pen, text: text.to_owned() });
        at.0 + width * (1.0 - before(anchor))
    }

    /// Text that runs upwards, around its middle.
    pub(super) fn upward(&mut self, at: (f32, f32), pen: Pen, text: &str) {
        let (anchor, text) = (Anchor::Middle, text.to_owned());
        self.items.push(Item::Text { at, upward: true, anchor, pen, text });
    }
}

/// The part of a text that lies before its anchor.
pub(super) fn before(anchor: Anchor) -> f32 {
    match anchor {
        Anchor::Left => 0.0,
        Anchor::Middle => 0.5,
        Anchor::Right => 1.0,
    }
}
