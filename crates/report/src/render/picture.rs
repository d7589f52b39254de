//! A picture as a list of items, from which a PNG or an SVG file is made.

use super::RenderError;
use super::color::Rgb;
use super::font::{Fonts, Weight};
use super::{raster, svg};

/// The position of the given point within a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// The style of text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pen {
    pub size: f32,
    pub weight: Weight,
    pub color: Rgb,
}

/// A colour, and its opacity from 0 to 1.
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

/// An item of a picture. Positions are in pixels from the upper left corner.
#[derive(Debug)]
pub(super) enum Item {
    /// a rectangle of one colour
    Rect { at: (usize, usize), size: (usize, usize), paint: Paint },
    /// a rectangle of pixels, line by line
    Pixels { at: (usize, usize), width: usize, pixels: Vec<Rgb> },
    /// For each column of pixels from `left` on, the area between two heights (the upper one first), or
    /// nothing.
    Columns { left: usize, spans: Vec<Option<(f32, f32)>>, paint: Paint },
    /// text with its baseline at a position; `upward`: rotated, reading upwards from there
    Text { at: (f32, f32), upward: bool, anchor: Anchor, pen: Pen, text: String },
}

/// The items of a picture, from the lowest to the highest layer.
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

    /// An SVG file. Its texts are outlines, so that it looks the same in every program.
    ///
    /// # Errors
    /// If pixels in it cannot be encoded.
    pub fn svg(&self) -> Result<String, RenderError> {
        svg::svg(self)
    }

    /// Draws each pixel of a rectangle with the colour that a function of its position returns.
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

    /// Draws text on a baseline; returns the position after it.
    pub(super) fn text(&mut self, at: (f32, f32), anchor: Anchor, pen: Pen, text: &str) -> f32 {
        let width = self.fonts.width(text, pen.size, pen.weight);
        self.items.push(Item::Text { at, upward: false, anchor, pen, text: text.to_owned() });
        at.0 + width * (1.0 - before(anchor))
    }

    /// Draws text that reads upwards, centred at its position.
    pub(super) fn upward(&mut self, at: (f32, f32), pen: Pen, text: &str) {
        let (anchor, text) = (Anchor::Middle, text.to_owned());
        self.items.push(Item::Text { at, upward: true, anchor, pen, text });
    }
}

/// The fraction of a text's width before its anchor.
pub(super) fn before(anchor: Anchor) -> f32 {
    match anchor {
        Anchor::Left => 0.0,
        Anchor::Middle => 0.5,
        Anchor::Right => 1.0,
    }
}
