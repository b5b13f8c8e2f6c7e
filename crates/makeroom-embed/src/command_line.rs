//! The parts of rustc's command line that the macros need: whether it links, and the files of the dependencies.

use std::fs;
use std::path::PathBuf;

/// What rustc was asked to do.
#[derive(Debug, Default)]
pub(crate) struct CommandLine {
    /// Whether it links a program (`--emit` has `link`), and does not only check.
    pub(crate) links: bool,
    /// Each dependency's name and file (`--extern`).
    pub(crate) externs: Vec<(String, PathBuf)>,
}

/// The command line of the process that expands the macro.
pub(crate) fn of_this_process() -> Result<CommandLine, String> {
    CommandLine::parse(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))
}

impl CommandLine {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut line = Self::default();
        let mut arguments = expand(arguments)?.into_iter();
        while let Some(argument) = arguments.next() {
            // Both `--name value` and `--name=value` are valid.
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) if argument.starts_with("--") => {
                    (name.to_owned(), Some(value.to_owned()))
                }
                _ => (argument, None),
            };
            let value = || value.or_else(|| arguments.next()).unwrap_or_default();
            match name.as_str() {
                "--emit" => {
                    line.links |= value().split(',').any(|kind| kind.split('=').next() == Some("link"));
                }
                "--extern" => line.externs.extend(dependency(&value())),
                _ => {}
            }
        }
        Ok(line)
    }
}

/// Splits `options:name=path`, whose options are absent as a rule. A dependency of the compiler's own has no path.
fn dependency(value: &str) -> Option<(String, PathBuf)> {
    let (name, path) = value.split_once('=')?;
    let name = name.rsplit(':').next().unwrap_or(name);
    Some((name.to_owned(), PathBuf::from(path)))
}

/// Replaces each `@file` with the lines of that file. Cargo passes the arguments in a file if they are too long for a
/// command line.
fn expand(arguments: impl IntoIterator<Item = String>) -> Result<Vec<String>, String> {
    let mut expanded = Vec::new();
    for argument in arguments {
        match argument.strip_prefix('@') {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
                expanded.extend(text.lines().map(str::to_owned));
            }
            None => expanded.push(argument),
        }
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn parse(arguments: &[&str]) -> CommandLine {
        CommandLine::parse(arguments.iter().map(ToString::to_string)).unwrap()
    }

    #[test]
    fn options_are_read_in_both_spellings() {
        for arguments in [
            &["--crate-name", "a", "--emit=dep-info,link", "--extern", "one=/d/libone.rlib"][..],
            &["--emit", "link=/d/a,dep-info", "--extern=one=/d/libone.rlib", "main.rs"][..],
            &["--emit=link", "--extern", "noprelude,nounused:one=/d/libone.rlib", "--extern", "proc_macro"][..],
        ] {
            let line = parse(arguments);
            assert!(line.links, "{arguments:?}");
            assert_eq!(line.externs, [("one".to_owned(), PathBuf::from("/d/libone.rlib"))], "{arguments:?}");
        }
    }

    #[test]
    fn a_file_of_arguments_counts() {
        let path = std::env::temp_dir().join(format!("arguments-{}", std::process::id()));
        fs::write(&path, "--emit=link\n--extern\none=/d/with space/libone.rlib\n").unwrap();
        let line = parse(&[&format!("@{}", path.display())]);
        fs::remove_file(&path).unwrap();
        assert!(line.links);
        assert_eq!(line.externs[0].1, PathBuf::from("/d/with space/libone.rlib"));
        assert!(CommandLine::parse(["@/does/not/exist".to_owned()]).unwrap_err().contains("/does/not/exist"));
    }
}
