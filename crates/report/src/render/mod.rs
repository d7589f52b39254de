//! Figures as text, pictures and JSON.

mod advice;
mod axis;
mod bars;
mod chart;
mod code;
mod color;
mod flame;
mod font;
mod groups;
mod heatmap;
mod lines;
mod need;
mod picture;
mod pprof;
mod raster;
mod rows;
mod style;
mod svg;
mod terminal;
mod text;
mod whatif;
mod words;

pub use advice::advice_text;
pub use bars::{regions_text, wss_text};
pub use chart::{regions_picture, wss_picture};
pub use code::{code_change_text, code_text, folded, refaults_text};
pub use color::of_rate as rate_color;
pub use color::position as rate_position;
pub use flame::{change_graph, flame_graph, page};
pub use groups::groups_text;
pub use heatmap::heatmap_picture;
pub use lines::lines_picture;
pub use need::{need_picture, need_text};
pub use picture::Picture;
pub use pprof::pprof;
pub use rows::{access_text, raw_head_text, raw_text};
pub use terminal::{Style, ansi256, rate_char, terminal};
pub use text::summary_text;
pub use whatif::{what_if_picture, what_if_text};
pub use words::{is_printable, printable};

/// The reason why figures could not be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// the built-in font cannot be read
    #[error(
        "the built-in font cannot be read ({0}): this is a defect of isotherm, please report it"
    )]
    Font(#[from] ab_glyph::InvalidFont),
    /// the picture cannot be encoded
    #[error("the picture cannot be encoded ({0}): try a smaller one")]
    Png(#[from] ::png::EncodingError),
    /// the profile cannot be compressed
    #[error("the profile cannot be compressed: {0}")]
    Gzip(std::io::Error),
    /// the figures cannot be encoded as JSON
    #[error(
        "the figures cannot be written as JSON ({0}): this is a defect of isotherm, please report it"
    )]
    Json(#[from] serde_json::Error),
}

/// Figures as JSON in one line.
///
/// # Errors
/// None are known, because all keys of the figures are text.
pub fn json(figures: &impl serde::Serialize) -> Result<String, RenderError> {
    Ok(serde_json::to_string(figures)?)
}
