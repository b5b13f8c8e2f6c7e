//! Text that can do nothing to a terminal but colour it.
//!
//! Names of files, functions and processes come out of recordings and logs that somebody else may have made. A terminal
//! obeys what stands in them: it can be told to move its cursor, to change its title, to fill the clipboard. Styles are
//! the one kind of sequence that makeroom writes itself, and the worst that a foreign one does is a colour.

/// The text with a space for every control character that neither ends a line nor belongs to a style.
pub fn tame(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_control() && letter != '\n') {
        let (before, from) = rest.split_at(at);
        tamed.push_str(before);
        let kept = style(from);
        if kept == 0 {
            tamed.push(' ');
            rest = from.get(from.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default();
        } else {
            tamed.push_str(&from[..kept]);
            rest = &from[kept..];
        }
    }
    tamed.push_str(rest);
    tamed
}

/// How long the style is that a text begins with; 0 where it begins with none.
fn style(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return 0 };
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';');
    end.filter(|&end| parameters[end..].starts_with('m'))
        .map_or(0, |end| text.len() - parameters.len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::tame;

    #[test]
    fn lines_and_styles_stay() {
        let text = "\n  \u{1b}[1mGPU 0\u{1b}[0m, é █▌ \u{1b}[38;5;208mx\u{1b}[m\n";
        assert_eq!(tame(text), text);
    }

    #[test]
    fn nothing_else_reaches_a_terminal() {
        for (hostile, tamed) in [
            ("\u{1b}[2J\u{1b}[Hx", " [2J [Hx"),
            ("\u{1b}]52;c;ZXZpbA==\u{7}x", " ]52;c;ZXZpbA== x"),
            ("a\rb\tc\u{8}", "a b c "),
            ("\u{9b}2J\u{7f}", " 2J "),
            ("\u{1b}", " "),
            ("\u{1b}[1", " [1"),
            ("\u{1b}\u{1b}[1m\u{1b}c", " \u{1b}[1m c"),
        ] {
            assert_eq!(tame(hostile), tamed, "{hostile:?}");
        }
    }
}
