//! Text as pixel coverage or as outlines, in the font Inter (see `fonts/`).

use ab_glyph::{Font, FontRef, Glyph, InvalidFont, OutlineCurve, PxScale, ScaleFont, point};

/// The weight of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Regular,
    SemiBold,
}

/// The contents of the font file.
fn file(weight: Weight) -> &'static [u8] {
    match weight {
        Weight::Regular => include_bytes!("../../fonts/Inter-Regular-subset.ttf"),
        Weight::SemiBold => include_bytes!("../../fonts/Inter-SemiBold-subset.ttf"),
    }
}

/// Both weights.
#[derive(Debug)]
pub(super) struct Fonts {
    regular: FontRef<'static>,
    semi_bold: FontRef<'static>,
}

impl Fonts {
    pub(super) fn new() -> Result<Self, InvalidFont> {
        Ok(Fonts {
            regular: FontRef::try_from_slice(file(Weight::Regular))?,
            semi_bold: FontRef::try_from_slice(file(Weight::SemiBold))?,
        })
    }

    fn font(&self, weight: Weight) -> &FontRef<'static> {
        match weight {
            Weight::Regular => &self.regular,
            Weight::SemiBold => &self.semi_bold,
        }
    }

    /// Width of `text` in pixels. `size` is the em size in pixels.
    pub(super) fn width(&self, text: &str, size: f32, weight: Weight) -> f32 {
        self.lay_out(text, size, weight).1
    }

    /// The longest start of `text` that fits in `width` pixels; an ellipsis marks a cut.
    pub(super) fn fit(&self, text: &str, size: f32, weight: Weight, width: f32) -> String {
        if self.width(text, size, weight) <= width {
            return text.to_owned();
        }
        let mut kept = text.to_owned();
        while kept.pop().is_some() && self.width(&kept, size, weight) > width - size {}
        kept.trim_end().to_owned() + "..."
    }

    /// The sentences at the start of `text` that fit in `width` pixels; if not even the first one does, its start.
    pub(super) fn fit_sentences(
        &self,
        text: &str,
        size: f32,
        weight: Weight,
        width: f32,
    ) -> String {
        let ends = text.match_indices(". ").map(|(dot, _)| dot + 1).chain([text.len()]);
        let starts = ends.filter_map(|end| text.get(..end));
        let fitting = starts.take_while(|start| self.width(start, size, weight) <= width).last();
        fitting.map_or_else(|| self.fit(text, size, weight, width), str::to_owned)
    }

    /// The glyphs of `text`, each with its start along the baseline, and the total width, in units of the font;
    /// an em has [`Fonts::units_per_em`] units.
    pub(super) fn glyphs(&self, text: &str, weight: Weight) -> (Vec<(u16, f32)>, f32) {
        let em = self.units_per_em(weight);
        let (glyphs, width) = self.lay_out(text, em, weight);
        (glyphs.into_iter().map(|g| (g.id.0, g.position.x)).collect(), width)
    }

    /// Units of the font in an em.
    pub(super) fn units_per_em(&self, weight: Weight) -> f32 {
        self.font(weight).units_per_em().unwrap_or(1000.0)
    }

    /// The outline of a glyph as an SVG path, in units of the font, with y downwards; empty for a space.
    pub(super) fn path(&self, glyph: u16, weight: Weight) -> String {
        let Some(outline) = self.font(weight).outline(ab_glyph::GlyphId(glyph)) else {
            return String::new();
        };
        let at = |p: &ab_glyph::Point| format!("{} {}", p.x.round(), -p.y.round());
        let (mut out, mut last) = (String::new(), None);
        for curve in &outline.curves {
            let (start, step, end) = match curve {
                OutlineCurve::Line(a, b) => (a, format!("L{}", at(b)), b),
                OutlineCurve::Quad(a, b, c) => (a, format!("Q{} {}", at(b), at(c)), c),
                OutlineCurve::Cubic(a, b, c, d) => {
                    (a, format!("C{} {} {}", at(b), at(c), at(d)), d)
                }
            };
            if last != Some(*start) {
                out += &format!("M{}", at(start));
            }
            out += &step;
            last = Some(*end);
        }
        out
    }

    /// Calls `each` with pixels relative to the start of the baseline, and their coverage.
    pub(super) fn draw(
        &self,
        text: &str,
        size: f32,
        weight: Weight,
        mut each: impl FnMut(i64, i64, f32),
    ) {
        for glyph in self.lay_out(text, size, weight).0 {
            let Some(outline) = self.font(weight).outline_glyph(glyph) else { continue };
            let origin = outline.px_bounds().min;
            outline.draw(|x, y, cover| {
                each(origin.x as i64 + i64::from(x), origin.y as i64 + i64::from(y), cover);
            });
        }
    }

    fn lay_out(&self, text: &str, size: f32, weight: Weight) -> (Vec<Glyph>, f32) {
        let font = self.font(weight);
        let em = font.units_per_em().unwrap_or(1000.0);
        let scale = PxScale::from(size * font.height_unscaled() / em);
        let scaled = font.as_scaled(scale);
        let mut x = 0.0;
        let mut glyphs = Vec::new();
        for c in text.chars() {
            // The font may lack a character, for example one in the name of a file.
            let has = font.glyph_id(c).0 != 0;
            let id = font.glyph_id(if has { c } else { '?' });
            glyphs.push(id.with_scale_and_position(scale, point(x, 0.0)));
            x += scaled.h_advance(id);
        }
        (glyphs, x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_wide_as_it_says() {
        let fonts = Fonts::new().unwrap();
        for weight in [Weight::Regular, Weight::SemiBold] {
            let width = fonts.width("[heap] 300 MiB", 13.0, weight);
            let (mut left, mut right, mut top, mut bottom) = (999, -999, 999, -999);
            fonts.draw("[heap] 300 MiB", 13.0, weight, |x, y, cover| {
                if cover > 0.5 {
                    (left, right) = (left.min(x), right.max(x));
                    (top, bottom) = (top.min(y), bottom.max(y));
                }
            });
            assert!((0..4).contains(&left) && (width as i64 - right).abs() < 3, "{left}..{right}");
            assert!((-13..=-9).contains(&top) && (0..5).contains(&bottom), "{top}..{bottom}");
        }
    }

    #[test]
    fn a_long_text_is_cut_to_fit() {
        let fonts = Fonts::new().unwrap();
        let cut = fonts.fit("a name that goes on and on", 13.0, Weight::Regular, 80.0);
        assert!(cut.ends_with("...") && cut.starts_with("a name"), "{cut}");
        assert!(fonts.width(&cut, 13.0, Weight::Regular) <= 82.0);
        assert_eq!(fonts.fit("short", 13.0, Weight::Regular, 80.0), "short");
    }

    #[test]
    fn a_sentence_that_does_not_fit_is_left_out() {
        let fonts = Fonts::new().unwrap();
        let fit = |text, width| fonts.fit_sentences(text, 13.0, Weight::Regular, width);
        let text = "Read by bpf. Not seen: the rest.";
        assert_eq!(fit(text, 500.0), text);
        assert_eq!(fit(text, 100.0), "Read by bpf.");
        assert!(fit(text, 50.0).ends_with("..."), "{}", fit(text, 50.0));
    }

    #[test]
    fn every_character_that_is_written_is_in_the_font() {
        let fonts = Fonts::new().unwrap();
        for c in (' '..='~').chain("·×–↑".chars()) {
            assert_ne!(fonts.regular.glyph_id(c).0, 0, "{c}");
            assert_ne!(fonts.semi_bold.glyph_id(c).0, 0, "{c}");
        }
    }
}
