//! A picture as pixels.

use super::RenderError;
use super::color::Rgb;
use super::picture::{Anchor, Item, Pen, Picture, before};

/// Pixels of a picture. Items outside of it are clipped.
struct Canvas<'a> {
    picture: &'a Picture,
    pixels: Vec<Rgb>,
}

/// The picture as the bytes of a PNG file.
pub(super) fn png(picture: &Picture) -> Result<Vec<u8>, RenderError> {
    let (width, height) = picture.size;
    let mut canvas = Canvas { picture, pixels: vec![picture.paper; width * height] };
    picture.items.iter().for_each(|item| canvas.draw(item));
    encode(width, &canvas.pixels)
}

/// Pixels, line by line, as the bytes of a PNG file.
pub(super) fn encode(width: usize, pixels: &[Rgb]) -> Result<Vec<u8>, RenderError> {
    let height = pixels.len() / width.max(1);
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut out = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut out, side(width), side(height));
    encoder.set_color(::png::ColorType::Rgb);
    encoder.set_depth(::png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels.as_flattened())?;
    writer.finish()?;
    Ok(out)
}

impl Canvas<'_> {
    fn draw(&mut self, item: &Item) {
        match item {
            Item::Rect { at: (x, y), size: (width, height), paint } => {
                let places = (*y..y + height).flat_map(|y| (*x..x + width).map(move |x| (x, y)));
                places.for_each(|(x, y)| self.mix(x, y, paint.color, paint.part));
            }
            Item::Pixels { at, width, pixels } => {
                for (y, line) in (at.1..).zip(pixels.chunks_exact(*width)) {
                    for (x, color) in (at.0..).zip(line) {
                        self.mix(x, y, *color, 1.0);
                    }
                }
            }
            Item::Columns { left, spans, paint } => {
                for (x, span) in (*left..).zip(spans) {
                    for (y, cover) in span.map(covered).into_iter().flatten() {
                        self.mix(x, y, paint.color, paint.part * cover);
                    }
                }
            }
            Item::Text { at, upward, anchor, pen, text } => {
                self.text(*at, *upward, *anchor, *pen, text);
            }
        }
    }

    fn text(&mut self, (x, y): (f32, f32), upward: bool, anchor: Anchor, pen: Pen, text: &str) {
        let fonts = &self.picture.fonts;
        let before = fonts.width(text, pen.size, pen.weight) * before(anchor);
        let start = if upward { y + before } else { x - before }.round() as i64;
        let mut covered = Vec::new();
        fonts.draw(text, pen.size, pen.weight, |dx, dy, cover| covered.push((dx, dy, cover)));
        for (dx, dy, cover) in covered {
            let (x, y) =
                if upward { (x as i64 + dy, start - dx) } else { (start + dx, y as i64 + dy) };
            if let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) {
                self.mix(x, y, pen.color, cover);
            }
        }
    }

    /// Mixes `part` (0 to 1) of a colour into a pixel, if it is in the picture.
    fn mix(&mut self, x: usize, y: usize, color: Rgb, part: f32) {
        let width = self.picture.size.0;
        let pixel = if x < width { self.pixels.get_mut(y * width + x) } else { None };
        for (old, new) in pixel.into_iter().flatten().zip(color) {
            let (from, to) = (f32::from(*old), f32::from(new));
            *old = (from + (to - from) * part.clamp(0.0, 1.0)).round() as u8;
        }
    }
}

/// The pixels of a column between two heights, and the coverage of each.
fn covered((top, bottom): (f32, f32)) -> impl Iterator<Item = (usize, f32)> {
    let (top, bottom) = (top.max(0.0), bottom.max(0.0));
    let pixels = top.floor() as usize..bottom.ceil() as usize;
    pixels.map(move |y| (y, bottom.min(y as f32 + 1.0) - top.max(y as f32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_of_a_column_are_covered_in_part() {
        let all = |top, bottom| covered((top, bottom)).collect::<Vec<_>>();
        assert_eq!(all(1.5, 4.0), [(1, 0.5), (2, 1.0), (3, 1.0)]);
        assert_eq!(all(2.25, 2.75), [(2, 0.5)]);
        assert_eq!(all(3.0, 3.0), []);
    }
}
