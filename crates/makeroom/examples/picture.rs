//! Draws a terminal's output as an SVG: reads text with ANSI colors from standard input, writes the picture to standard
//! output. `docs/pictures` calls it for the pictures of the README.
//!
//! Light text on dark, in colors that are easy to tell apart. Dimmed text and red are brighter than in a terminal, because they
//! would be hard to read on a page.

use std::io::{self, Read as _, Write as _};

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let picture = anstyle_svg::Term::new()
        .palette(anstyle_svg::WIN10_CONSOLE)
        .min_width_px(760)
        .render_svg(&text)
        .replace(".dimmed { opacity: 0.4; }", ".dimmed { opacity: 0.7; }")
        .replace(".fg-red { fill: #C50F1F }", ".fg-red { fill: #E74856 }");
    io::stdout().write_all(picture.as_bytes())
}
