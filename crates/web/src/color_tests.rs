//! The colours of rates and of heat can be told apart by people who lack a kind of cone.

use isotherm_report::rate_color;
use isotherm_view::cell::byte_rates;

type Color = [f64; 3];

/// What people see of linear sRGB: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of
/// Color Vision Deficiency", IEEE Transactions on Visualization and Computer Graphics 15(6), 2009; severity 1.0.
const VISIONS: [(&str, [Color; 3]); 4] = [
    ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ),
    (
        "tritanopia",
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ),
];
/// Minimum distance of two decades of rates, and of two kinds of heat. About 2.3 can just be noticed.
const DECADES: f64 = 10.0;
const HEATS: f64 = 20.0;

const STYLE: &str = include_str!("../assets/style.css");
/// The rules of the themes; the last one is that of a dark system.
const LIGHT: &str = ":root {";
const DARK: [&str; 2] = [":root[data-theme=\"dark\"] {", ":root:not([data-theme=\"light\"]) {"];

/// Linear sRGB as L*, a* and b* (CIE 1976, D65).
fn lab(rgb: Color) -> Color {
    const XYZ: [Color; 3] = [
        [0.412_456_4, 0.357_576_1, 0.180_437_5],
        [0.212_672_9, 0.715_152_2, 0.072_175_0],
        [0.019_333_9, 0.119_192_0, 0.950_304_1],
    ];
    const WHITE: Color = [0.950_47, 1.0, 1.088_83];
    let xyz = times(&XYZ, rgb);
    let [x, y, z] = [0, 1, 2].map(|i| {
        let t: f64 = xyz[i] / WHITE[i];
        if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 }
    });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn times(matrix: &[Color; 3], v: Color) -> Color {
    matrix.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum())
}

fn seen(vision: &[Color; 3], rgb: [u8; 3]) -> Color {
    let linear = rgb.map(|v| {
        let x = f64::from(v) / 255.0;
        if x <= 0.040_45 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
    });
    lab(times(vision, linear).map(|v| v.clamp(0.0, 1.0)))
}

/// CIE76.
fn distance(a: Color, b: Color) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// A colour in the rule of the page that begins with `selector`.
fn styled(selector: &str, name: &str) -> Option<[u8; 3]> {
    let (_, rule) = STYLE.split_once(selector)?;
    let (_, value) = rule.split_once('}')?.0.split_once(&format!("--{name}: #"))?;
    let digits = |i: usize| u8::from_str_radix(value.get(i..i + 2)?, 16).ok();
    Some([digits(0)?, digits(2)?, digits(4)?])
}

#[test]
fn hotter_is_lighter_and_decades_differ() {
    for (vision, matrix) in &VISIONS {
        let of = |hz: f64| seen(matrix, rate_color(hz));
        let mut levels: Vec<f64> = byte_rates().iter().map(|hz| of(f64::from(*hz))[0]).collect();
        // Rates below the scale have the colour of its end.
        levels.dedup();
        assert!(levels.is_sorted_by(|a, b| a < b), "{vision}: {levels:?}");
        for pair in [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0].windows(2) {
            let far = distance(of(pair[0]), of(pair[1]));
            assert!(far >= DECADES, "{vision}: {pair:?} Hz differ by {far:.1}");
        }
    }
}

/// Any two may be neighbours, because a kind without memory is not drawn.
#[test]
fn kinds_of_heat_differ_from_each_other_and_from_the_paper() {
    for (vision, matrix) in &VISIONS {
        for theme in [LIGHT, DARK[0]] {
            let names = ["hot", "warm", "cold", "unknown", "saved", "paper"];
            let of = |name| styled(theme, name).or_else(|| styled(LIGHT, name));
            let colors = names.map(|name| seen(matrix, of(name).unwrap()));
            for (i, a) in colors.iter().enumerate() {
                for (k, b) in colors.iter().enumerate().skip(i + 1) {
                    let (far, names) = (distance(*a, *b), [names[i], names[k]]);
                    assert!(far >= HEATS, "{vision}, {theme} {names:?} differ by {far:.1}");
                }
            }
        }
    }
}

#[test]
fn both_rules_of_the_dark_theme_agree() {
    for name in ["paper", "ink", "quiet", "line", "panel", "accent", "saved"] {
        let [chosen, system] = DARK.map(|selector| styled(selector, name));
        assert!(chosen.is_some() && chosen == system, "{name}");
    }
}
