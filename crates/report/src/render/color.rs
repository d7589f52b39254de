//! Colours of rates.

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Rates at the ends of the scale: four decades. They are fixed, so that pictures can be compared.
pub(super) const LOW_HZ: f64 = 0.1;
pub(super) const HIGH_HZ: f64 = 1000.0;

/// Lightness, chroma and hue (degrees) in OKLCH at even steps from [`LOW_HZ`] to [`HIGH_HZ`]. Lightness rises
/// evenly, so that the order is visible without colour vision and in print.
const POINTS: [[f64; 3]; 5] = [
    [0.34, 0.12, 285.0],
    [0.46, 0.17, 312.0],
    [0.60, 0.20, 10.0],
    [0.74, 0.16, 58.0],
    [0.90, 0.15, 98.0],
];

/// Resident and not touched: darker than every rate.
pub(super) fn untouched() -> Rgb {
    srgb(lab([0.18, 0.03, 275.0]))
}

/// The position of a rate on the scale, from 0 to 1.
#[must_use]
pub fn position(hz: f64) -> f64 {
    ((hz / LOW_HZ).ln() / (HIGH_HZ / LOW_HZ).ln()).clamp(0.0, 1.0)
}

/// The colour of a rate; for rate 0, that of `untouched` memory.
#[must_use]
pub fn of_rate(hz: f64) -> Rgb {
    if hz > 0.0 { at(position(hz)) } else { untouched() }
}

/// The colour of a position on the scale.
pub(super) fn at(position: f64) -> Rgb {
    let x = position.clamp(0.0, 1.0) * (POINTS.len() - 1) as f64;
    let i = (x as usize).min(POINTS.len() - 2);
    let (a, b, part) = (lab(POINTS[i]), lab(POINTS[i + 1]), x - i as f64);
    srgb([0, 1, 2].map(|k| a[k] + (b[k] - a[k]) * part))
}

fn lab([l, c, h]: [f64; 3]) -> [f64; 3] {
    [l, c * h.to_radians().cos(), c * h.to_radians().sin()]
}

/// A mixture of two colours, with `part` (0 to 1) of `other`.
pub(super) fn mixed(color: Rgb, other: Rgb, part: f32) -> Rgb {
    let mix = |(a, b): (u8, u8)| (f32::from(a) * (1.0 - part) + f32::from(b) * part).round() as u8;
    [0, 1, 2].map(|i| mix((color[i], other[i])))
}

/// OKLab to sRGB, after Björn Ottosson's definition.
fn srgb([l, a, b]: [f64; 3]) -> Rgb {
    let l_ = (l + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m_ = (l - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s_ = (l - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    [
        4.076_741_662_1 * l_ - 3.307_711_591_3 * m_ + 0.230_969_929_2 * s_,
        -1.268_438_004_6 * l_ + 2.609_757_401_1 * m_ - 0.341_319_396_5 * s_,
        -0.004_196_086_3 * l_ - 0.703_418_614_7 * m_ + 1.707_614_701_0 * s_,
    ]
    .map(gamma)
}

fn gamma(linear: f64) -> u8 {
    let x = linear.clamp(0.0, 1.0);
    let v = if x <= 0.003_130_8 { 12.92 * x } else { 1.055 * x.powf(1.0 / 2.4) - 0.055 };
    (v * 255.0).round() as u8
}

/// A table of the scale, because colours are looked up for every pixel.
#[derive(Debug)]
pub(super) struct Palette([Rgb; 256]);

impl Palette {
    pub(super) fn new() -> Self {
        Palette(std::array::from_fn(|i| at(i as f64 / 255.0)))
    }

    /// As [`of_rate`].
    pub(super) fn of_rate(&self, hz: f32) -> Rgb {
        if hz > 0.0 {
            self.0[(position(f64::from(hz)) * 255.0).round() as usize & 255]
        } else {
            untouched()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as sRGB defines it.
    fn luminance(rgb: Rgb) -> f64 {
        let linear = rgb.map(|v| {
            let x = f64::from(v) / 255.0;
            if x <= 0.040_45 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn hotter_is_lighter_everywhere_and_untouched_is_darkest() {
        let mut last = luminance(untouched());
        for i in 0..=64 {
            let now = luminance(at(f64::from(i) / 64.0));
            assert!(now > last, "{i}: {now} is not above {last}");
            last = now;
        }
    }

    #[test]
    fn the_scale_is_logarithmic_and_ends_are_held() {
        for (hz, place) in
            [(0.01, 0.0), (0.1, 0.0), (1.0, 0.25), (10.0, 0.5), (1000.0, 1.0), (1e9, 1.0)]
        {
            assert!((position(hz) - place).abs() < 1e-9, "{hz}");
        }
        assert_eq!(of_rate(0.0), untouched());
        assert_eq!(Palette::new().of_rate(1000.0), at(1.0));
    }

    #[test]
    fn grey_is_grey() {
        assert_eq!(srgb([1.0, 0.0, 0.0]), [255, 255, 255]);
        assert_eq!(srgb([0.0, 0.0, 0.0]), [0, 0, 0]);
    }
}
