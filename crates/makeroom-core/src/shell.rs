//! Words of a shell command, for commands that a user pastes.

/// A text as one word of a shell command: in quotes if it contains anything but letters, digits and a few signs.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@%,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_as_it_is() {
        for text in ["run.room", "a b", "it's", "$(reboot)", "", "-o", "é", "a\nb", "x;y"] {
            let shown = format!("printf %s {}", shell_word(text));
            let output = std::process::Command::new("/bin/sh").arg("-c").arg(shown).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
        assert_eq!(shell_word("traces/run-1.room"), "traces/run-1.room");
    }
}
