//! Draws a terminal's output as an SVG: reads text with ANSI colors from standard input, writes the picture to standard
//! output. `docs/pictures` calls it for the pictures of the README.
//!
//! Light text on dark, in colors that are easy to tell apart and dimmed text that is still legible.

use std::io::{self, Read as _, Write as _};

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let picture = anstyle_svg::Term::new()
        .palette(anstyle_svg::WIN10_CONSOLE)
        .min_width_px(760)
        .render_svg(&text)
        .replace(".dimmed { opacity: 0.4; }", ".dimmed { opacity: 0.7; }");
    io::stdout().write_all(picture.as_bytes())
}
