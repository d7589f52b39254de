//! A picture as an SVG file that needs nothing beside it: texts are text, the font is inside, and
//! the cells of a heat map are pixels, which as shapes would be too many for a browser.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::RenderError;
use super::color::Rgb;
use super::font::{Weight, file};
use super::picture::{Anchor, Item, Paint, Picture};
use super::raster;
use super::words::is_printable;

/// The picture as an SVG document.
pub(super) fn svg(picture: &Picture) -> Result<String, RenderError> {
    let (width, height) = picture.size;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"Inter, sans-serif\">\n<style>{}{}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        font_face(Weight::Regular),
        font_face(Weight::SemiBold),
        hex(picture.paper)
    );
    for item in &picture.items {
        out += &element(item)?;
        out.push('\n');
    }
    Ok(out + "</svg>\n")
}

fn font_face(weight: Weight) -> String {
    format!(
        "@font-face{{font-family:Inter;font-weight:{};src:url(data:font/ttf;base64,{})}}",
        number(weight),
        STANDARD.encode(file(weight))
    )
}

fn number(weight: Weight) -> u32 {
    match weight {
        Weight::Regular => 400,
        Weight::SemiBold => 600,
    }
}

fn element(item: &Item) -> Result<String, RenderError> {
    Ok(match item {
        Item::Rect { at: (x, y), size: (width, height), paint } => format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {}/>",
            fill(*paint)
        ),
        Item::Pixels { at: (x, y), width, pixels } => format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" \
             preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" \
             href=\"data:image/png;base64,{}\"/>",
            pixels.len() / (*width).max(1),
            STANDARD.encode(raster::encode(*width, pixels)?)
        ),
        Item::Columns { left, spans, paint } => {
            format!("<path d=\"{}\" {}/>", path(*left, spans), fill(*paint))
        }
        Item::Text { at: (x, y), upward, anchor, pen, text } => {
            let turn =
                if *upward { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            let anchor = match anchor {
                Anchor::Left => "start",
                Anchor::Middle => "middle",
                Anchor::Right => "end",
            };
            format!(
                "<text x=\"{x}\" y=\"{y}\"{turn} font-size=\"{}\" font-weight=\"{}\" \
                 text-anchor=\"{anchor}\" fill=\"{}\">{}</text>",
                pen.size,
                number(pen.weight),
                hex(pen.color),
                escaped(text)
            )
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

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Text as XML has it. What XML cannot hold (a file's name may) becomes a mark.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            c if !is_printable(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_marked() {
        assert_eq!(escaped("a<b> & \u{1b}[1m\u{ffff}"), "a&lt;b&gt; &amp; ?[1m?");
    }

    #[test]
    fn equal_columns_are_one_rectangle_and_none_is_a_gap() {
        let one = Some((1.5, 9.0));
        let spans = [one, one, None, Some((2.0, 9.0))];
        assert_eq!(path(10, &spans), "M10 1.50h2V9.00h-2zM13 2.00h1V9.00h-1z");
    }
}
