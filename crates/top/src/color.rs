//! The colours of the terminal, from 24 bits to none.

use isotherm_report::{ansi256, rate_color, rate_position};
use ratatui::style::Color;

/// The colours that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// 24 bits
    True,
    /// 256 colours
    Ansi256,
    /// 16 colours
    Ansi16,
    /// none: characters show rates
    None,
}

/// Rates in 16 colours, from 0.1 Hz to 1000 Hz.
const SIXTEEN: [Color; 6] =
    [Color::Blue, Color::Magenta, Color::Red, Color::LightRed, Color::LightYellow, Color::White];
const UNKNOWN: [u8; 3] = [0x87, 0x90, 0x9d];

impl Colors {
    /// The colours that the environment promises: `NO_COLOR`, `COLORTERM` and `TERM`.
    #[must_use]
    pub fn of_environment(get: impl Fn(&str) -> Option<String>) -> Self {
        let has = |name| get(name).is_some_and(|value| !value.is_empty());
        let term = get("TERM").unwrap_or_default();
        let color_term = get("COLORTERM").unwrap_or_default();
        if has("NO_COLOR") || term.is_empty() || term == "dumb" || term.starts_with("vt") {
            Colors::None
        } else if ["truecolor", "24bit"].contains(&&*color_term) || term.ends_with("-direct") {
            Colors::True
        } else if term.contains("256") || !color_term.is_empty() {
            Colors::Ansi256
        } else {
            Colors::Ansi16
        }
    }

    /// The colour of a rate, in Hz; `None` without colours.
    #[must_use]
    pub fn rate(self, hz: f32) -> Option<Color> {
        self.shown(rate_color(hz.into()), || {
            let steps = SIXTEEN.len() as f64;
            let step = (rate_position(hz.into()) * steps) as usize;
            if hz > 0.0 { SIXTEEN[step.min(SIXTEEN.len() - 1)] } else { Color::DarkGray }
        })
    }

    /// The colour of memory whose accesses cannot be observed.
    #[must_use]
    pub fn unknown(self) -> Option<Color> {
        self.shown(UNKNOWN, || Color::Gray)
    }

    fn shown(self, rgb: [u8; 3], sixteen: impl FnOnce() -> Color) -> Option<Color> {
        match self {
            Colors::True => Some(Color::Rgb(rgb[0], rgb[1], rgb[2])),
            Colors::Ansi256 => u8::try_from(ansi256(rgb)).ok().map(Color::Indexed),
            Colors::Ansi16 => Some(sixteen()),
            Colors::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_a_terminal_can_show() {
        let of = |pairs: &[(&str, &str)]| {
            Colors::of_environment(|name| {
                pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())
            })
        };
        assert_eq!(of(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), Colors::True);
        assert_eq!(of(&[("TERM", "screen-256color")]), Colors::Ansi256);
        assert_eq!(of(&[("TERM", "linux")]), Colors::Ansi16);
        for none in [&[("TERM", "dumb")][..], &[], &[("TERM", "xterm-256color"), ("NO_COLOR", "1")]]
        {
            assert_eq!(of(none), Colors::None);
        }
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "")]), Colors::Ansi256);
    }

    #[test]
    fn rates_have_different_colours_in_every_palette() {
        for colors in [Colors::True, Colors::Ansi256, Colors::Ansi16] {
            let all = [0.0, 0.1, 3.0, 20.0, 1000.0].map(|hz| colors.rate(hz));
            for (i, color) in all.iter().enumerate() {
                assert!(color.is_some() && !all[..i].contains(color), "{colors:?}: {all:?}");
            }
        }
        assert_eq!(Colors::None.rate(10.0), None);
    }
}
