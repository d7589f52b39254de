//! A picture as a self-contained SVG file that looks the same in every program. Texts are outlines, because
//! many programs ignore an embedded font, and texts in another font overlap. Each text is also the label of its
//! outlines. The cells of a heat map are pixels, because a browser cannot display that many shapes.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::RenderError;
use super::color::Rgb;
use super::font::{Fonts, Weight};
use super::picture::{Anchor, Item, Paint, Pen, Picture, before};
use super::raster;
use super::words::is_printable;

/// The picture as an SVG document. References use `xlink:href`, as in SVG 1.1, because Inkscape 1.2 draws
/// neither a glyph nor an image that a plain `href` references.
pub(super) fn svg(picture: &Picture) -> Result<String, RenderError> {
    let (width, height) = picture.size;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<defs>\n{}</defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        glyphs(picture),
        hex(picture.paper)
    );
    for item in &picture.items {
        out += &element(&picture.fonts, item)?;
        out.push('\n');
    }
    Ok(out + "</svg>\n")
}

/// The outline of each glyph that occurs, once.
fn glyphs(picture: &Picture) -> String {
    let mut used = BTreeMap::new();
    for item in &picture.items {
        if let Item::Text { pen, text, .. } = item {
            for (glyph, _) in picture.fonts.glyphs(&shown(text), pen.weight).0 {
                used.entry(id(glyph, pen.weight))
                    .or_insert_with(|| picture.fonts.path(glyph, pen.weight));
            }
        }
    }
    let outline = |(id, path): (&String, &String)| format!("<path id=\"{id}\" d=\"{path}\"/>\n");
    used.iter().filter(|(_, path)| !path.is_empty()).map(outline).collect()
}

fn id(glyph: u16, weight: Weight) -> String {
    match weight {
        Weight::Regular => format!("r{glyph}"),
        Weight::SemiBold => format!("b{glyph}"),
    }
}

/// Text as a sequence of its glyphs.
fn text(
    fonts: &Fonts,
    (x, y): (f32, f32),
    upward: bool,
    anchor: Anchor,
    pen: Pen,
    text: &str,
) -> String {
    let text = shown(text);
    let (glyphs, width) = fonts.glyphs(&text, pen.weight);
    let scale = pen.size / fonts.units_per_em(pen.weight);
    let turn = if upward { " rotate(-90)" } else { "" };
    let before = -width * before(anchor);
    let mut out = format!(
        "<g transform=\"translate({x} {y}){turn} scale({scale})\" fill=\"{}\" role=\"img\" \
         aria-label=\"{}\">",
        hex(pen.color),
        escaped(&text)
    );
    for ((glyph, at), c) in glyphs.into_iter().zip(text.chars()) {
        if c != ' ' {
            let x = (before + at).round();
            let _ = write!(out, "<use xlink:href=\"#{}\" x=\"{x}\"/>", id(glyph, pen.weight));
        }
    }
    out + "</g>"
}

fn element(fonts: &Fonts, item: &Item) -> Result<String, RenderError> {
    Ok(match item {
        Item::Rect { at: (x, y), size: (width, height), paint } => format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {}/>",
            fill(*paint)
        ),
        Item::Pixels { at: (x, y), width, pixels } => format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" \
             preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" \
             xlink:href=\"data:image/png;base64,{}\"/>",
            pixels.len() / (*width).max(1),
            STANDARD.encode(raster::encode(*width, pixels)?)
        ),
        Item::Columns { left, spans, paint } => {
            format!("<path d=\"{}\" {}/>", path(*left, spans), fill(*paint))
        }
        Item::Text { at, upward, anchor, pen, text: words } => {
            text(fonts, *at, *upward, *anchor, *pen, words)
        }
    })
}

/// A rectangle for each run of equal columns.
fn path(left: usize, spans: &[Option<(f32, f32)>]) -> String {
    let mut out = String::new();
    let mut x = left;
    for run in spans.chunk_by(|a, b| a == b) {
        if let Some((top, bottom)) = run[0] {
            let _ = write!(out, "M{x} {top:.2}h{}V{bottom:.2}h-{}z", run.len(), run.len());
        }
        x += run.len();
    }
    out
}

fn fill(paint: Paint) -> String {
    let color = hex(paint.color);
    if paint.part < 1.0 {
        format!("fill=\"{color}\" fill-opacity=\"{}\"", paint.part)
    } else {
        format!("fill=\"{color}\"")
    }
}

pub(super) fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Replaces characters that XML cannot represent, which may occur in the name of a file.
pub(super) fn shown(text: &str) -> String {
    let can = |c: char| is_printable(c) && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if can(c) { c } else { '?' }).collect()
}

/// Escapes text for an XML attribute.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In Inkscape all but the lines was missing.
    #[test]
    fn older_renderers_follow_all_references() {
        let mut picture = Picture::new((60, 40), [255; 3]).unwrap();
        picture.text((2.0, 20.0), Anchor::Left, crate::render::style::NOTE_PEN, "a");
        picture.items.push(Item::Pixels { at: (0, 0), width: 1, pixels: vec![[0; 3]] });
        let svg = picture.svg().unwrap();
        assert_eq!(svg.matches("href=").count(), 2);
        assert_eq!(svg.matches(" xlink:href=").count(), 2);
        assert!(svg.contains("xmlns:xlink="));
    }

    #[test]
    fn characters_invalid_in_xml_are_marked() {
        assert_eq!(escaped(&shown("a<b> & \"\u{1b}[1m\u{ffff}")), "a&lt;b&gt; &amp; &quot;?[1m?");
    }

    fn pixels(png: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let channels = info.color_type.samples();
        let rgb = bytes.chunks(channels).flat_map(|p| p[..3].to_vec()).collect();
        (info.width, info.height, rgb)
    }

    /// A renderer without our font draws the SVG like the PNG.
    #[test]
    fn another_renderer_draws_the_same() {
        use crate::render::style::{HEADING, LABEL, NAME_PEN, NOTE_PEN};
        let mut picture = Picture::new((600, 160), [255; 3]).unwrap();
        picture.text((20.0, 40.0), Anchor::Left, HEADING, "redis-server on vm, Linux 6.18");
        let end = picture.text((20.0, 70.0), Anchor::Left, NAME_PEN, "anonymous + 5 more [heap]");
        picture.text((end + 12.0, 70.0), Anchor::Left, NOTE_PEN, "298.2 MiB, 295.1 MiB resident");
        picture.text((590.0, 70.0), Anchor::Right, NOTE_PEN, "from 0x7efc2d270000");
        picture.text((300.0, 100.0), Anchor::Middle, LABEL, "a<b> & \"quoted\" \u{6f22}");
        picture.upward((12.0, 100.0), NOTE_PEN, "address");
        let dir = std::env::temp_dir().join(format!("isotherm-svg-{}", std::process::id()));
        std::fs::write(&dir, picture.svg().unwrap()).unwrap();
        let done = std::process::Command::new("rsvg-convert").arg(&dir).output();
        std::fs::remove_file(&dir).unwrap();
        let Ok(done) = done else {
            let required = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
            assert!(!required, "rsvg-convert is missing: install librsvg2-bin");
            println!("skipped another_renderer_draws_the_same: it requires rsvg-convert");
            return;
        };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let (theirs, ours) = (pixels(&done.stdout), pixels(&picture.png().unwrap()));
        assert_eq!((theirs.0, theirs.1), (ours.0, ours.1));
        let far = theirs.2.iter().zip(&ours.2).filter(|(a, b)| a.abs_diff(**b) > 128).count();
        let inked = ours.2.iter().filter(|v| **v < 128).count();
        assert!(far * 10 < inked, "{far} of {inked} differ");
    }

    #[test]
    fn equal_columns_are_one_rectangle_and_none_is_a_gap() {
        let one = Some((1.5, 9.0));
        let spans = [one, one, None, Some((2.0, 9.0))];
        assert_eq!(path(10, &spans), "M10 1.50h2V9.00h-2zM13 2.00h1V9.00h-1z");
    }
}
