//! Draws a terminal's output as an SVG: reads text with ANSI colors from standard input, writes the picture to standard
//! output. `docs/pictures` calls it for the pictures of the README.
//!
//! The background follows the reader's theme: dark text on light, light text on dark.

use std::io::{self, Read as _, Write as _};

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let picture = anstyle_svg::Term::new().min_width_px(760).render_svg(&text);
    io::stdout().write_all(picture.as_bytes())
}
