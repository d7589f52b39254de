//! Pixels, and what is drawn with them.

use super::RenderError;
use super::color::Rgb;
use super::font::{Fonts, Weight};

/// Where the point given for a text lies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// How text looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pen {
    pub size: f32,
    pub weight: Weight,
    pub color: Rgb,
}

/// A picture; what is drawn beside it is lost.
#[derive(Debug)]
pub(super) struct Canvas {
    pub fonts: Fonts,
    width: usize,
    pixels: Vec<Rgb>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize, color: Rgb) -> Result<Self, RenderError> {
        Ok(Canvas { fonts: Fonts::new()?, width, pixels: vec![color; width * height] })
    }

    fn pixel(&mut self, x: usize, y: usize) -> Option<&mut Rgb> {
        if x < self.width { self.pixels.get_mut(y * self.width + x) } else { None }
    }

    /// Each pixel of a rectangle by a function of its place.
    pub(super) fn fill(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        color: impl Fn(usize, usize) -> Rgb,
    ) {
        for dy in 0..height {
            for dx in 0..width {
                if let Some(pixel) = self.pixel(x + dx, y + dy) {
                    *pixel = color(dx, dy);
                }
            }
        }
    }

    /// Mixes `part` of a colour into a rectangle.
    pub(super) fn veil(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        color: Rgb,
        part: f32,
    ) {
        for y in y..y + height {
            (x..x + width).for_each(|x| mix(self.pixel(x, y), color, part));
        }
    }

    /// A line of one pixel around a rectangle.
    pub(super) fn frame(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        color: Rgb,
    ) {
        for (at, size) in [
            ((x - 1, y - 1), (width + 2, 1)),
            ((x - 1, y + height), (width + 2, 1)),
            ((x - 1, y), (1, height)),
            ((x + width, y), (1, height)),
        ] {
            self.fill(at, size, |_, _| color);
        }
    }

    /// Text on a baseline; gives the place behind it.
    pub(super) fn text(
        &mut self,
        (x, baseline): (f32, f32),
        anchor: Anchor,
        pen: Pen,
        text: &str,
    ) -> f32 {
        let start = x - self.before(text, pen, anchor);
        self.glyphs(text, pen, |dx, dy| (start.round() as i64 + dx, baseline as i64 + dy));
        start + self.fonts.width(text, pen.size, pen.weight)
    }

    /// Text that runs upwards, around its middle.
    pub(super) fn upward(&mut self, (baseline, y): (f32, f32), pen: Pen, text: &str) {
        let start = y + self.before(text, pen, Anchor::Middle);
        self.glyphs(text, pen, |dx, dy| (baseline as i64 + dy, start.round() as i64 - dx));
    }

    fn before(&self, text: &str, pen: Pen, anchor: Anchor) -> f32 {
        let width = self.fonts.width(text, pen.size, pen.weight);
        match anchor {
            Anchor::Left => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::Right => width,
        }
    }

    fn glyphs(&mut self, text: &str, pen: Pen, place: impl Fn(i64, i64) -> (i64, i64)) {
        let mut covered = Vec::new();
        self.fonts.draw(text, pen.size, pen.weight, |dx, dy, cover| covered.push((dx, dy, cover)));
        for (dx, dy, cover) in covered {
            let (x, y) = place(dx, dy);
            if let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) {
                mix(self.pixel(x, y), pen.color, cover);
            }
        }
    }

    /// The file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, RenderError> {
        let height = self.pixels.len() / self.width.max(1);
        let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut out = Vec::new();
        let mut encoder = ::png::Encoder::new(&mut out, side(self.width), side(height));
        encoder.set_color(::png::ColorType::Rgb);
        encoder.set_depth(::png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(out)
    }
}

/// Mixes `part` of a colour into a pixel, if it is there.
fn mix(pixel: Option<&mut Rgb>, color: Rgb, part: f32) {
    for (old, new) in pixel.into_iter().flatten().zip(color) {
        let (from, to) = (f32::from(*old), f32::from(new));
        *old = (from + (to - from) * part.clamp(0.0, 1.0)).round() as u8;
    }
}
