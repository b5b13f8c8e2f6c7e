//! Reads the words of a pattern from its source, in one pass.
//!
//! A syntax tree would take longer than searching a short text. Where the pass meets syntax that it does not know, it stops with
//! [`Unknown`].

use super::words::{Concatenation, FOLDED, Words};

/// A part of a pattern.
pub(super) enum Part {
    /// A letter that matches only itself and, in ASCII, its other case.
    Letter(char),
    /// Anything else, with its words.
    Other(Option<Words>),
}

impl Part {
    pub(super) fn of_letter(letter: char, is_escaped: bool) -> Self {
        let has_one_case = || letter.to_lowercase().eq([letter]) && letter.to_uppercase().eq([letter]);
        let is_caseless = letter.is_ascii() || !is_escaped && has_one_case();
        if is_caseless {
            Self::Letter(letter)
        } else {
            Self::Other((!FOLDED.contains(&letter)).then_some(Words::OutsideAscii))
        }
    }

    pub(super) fn words(self) -> Option<Words> {
        match self {
            Self::Letter(letter) => Some(Words::One(letter.to_string().into_bytes())),
            Self::Other(words) => words,
        }
    }
}

/// Syntax that is not known here, or an error.
pub(super) struct Unknown;

pub(super) struct Reader<'source> {
    pub(super) rest: &'source str,
    /// The flag `x`: spaces and comments have no meaning.
    ignores_space: bool,
    /// Whether a group such as `(?i)` set flags for the rest of the group around it.
    pub(super) sets_flags: bool,
}

impl<'source> Reader<'source> {
    pub(super) fn new(source: &'source str) -> Self {
        Self { rest: source, ignores_space: false, sets_flags: false }
    }

    /// The flags for the whole pattern, if it starts with them.
    pub(super) fn leading_flags(&mut self) -> &'source str {
        let source = self.rest;
        if self.skip(b'(') && self.skip(b'?') && self.flags().is_ok_and(|are_for_rest| are_for_rest) {
            return &source[..source.len() - self.rest.len()];
        }
        *self = Self::new(source);
        ""
    }

    fn next(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let next = letters.next();
        self.rest = letters.as_str();
        next
    }

    /// Skips an ASCII character if it comes next. Returns whether it did.
    pub(super) fn skip(&mut self, wanted: u8) -> bool {
        let is_next = self.rest.as_bytes().first() == Some(&wanted);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn skip_space(&mut self) {
        let may_be_space = |byte: u8| byte <= b' ' || byte == b'#' || !byte.is_ascii();
        while self.ignores_space && self.rest.as_bytes().first().is_some_and(|&first| may_be_space(first)) {
            let rest = self.rest.trim_start();
            let Some(comment) = rest.strip_prefix('#') else {
                self.rest = rest;
                return;
            };
            self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        }
    }

    /// Alternatives, up to the end of their group or of the pattern.
    pub(super) fn alternation(&mut self) -> Result<Option<Words>, Unknown> {
        let first = self.concatenation()?;
        if !self.rest.starts_with('|') {
            return Ok(first);
        }
        let mut all = first.map(|first| vec![first]);
        while self.skip(b'|') {
            let next = self.concatenation()?;
            all = all.zip(next).map(|(mut all, next)| {
                all.push(next);
                all
            });
        }
        Ok(all.map(Words::Any))
    }

    pub(super) fn concatenation(&mut self) -> Result<Option<Words>, Unknown> {
        let mut all = Concatenation::default();
        // Kept back, because a repetition may follow it.
        let mut last: Option<Part> = None;
        loop {
            self.skip_space();
            match self.rest.as_bytes().first() {
                None | Some(b'|' | b')') => return Ok(all.finish(last)),
                Some(b'*' | b'?' | b'+' | b'{') => {
                    let is_optional = self.repetition()? == 0;
                    let part = last.take().ok_or(Unknown)?;
                    last = Some(Part::Other(if is_optional { None } else { part.words() }));
                }
                Some(_) => {
                    let part = self.part()?;
                    last.replace(part).into_iter().for_each(|part| all.push(part));
                }
            }
        }
    }

    /// The least number of times that the part before occurs.
    fn repetition(&mut self) -> Result<u32, Unknown> {
        let least = match self.next() {
            Some('+') => 1,
            Some('{') => {
                let (range, rest) = self.rest.split_once('}').ok_or(Unknown)?;
                self.rest = rest;
                // A comment may contain anything.
                if range.contains('#') {
                    return Err(Unknown);
                }
                let least = range.split_once(',').map_or(range, |(least, _)| least).trim();
                if least.is_empty() { 0 } else { least.parse().map_err(|_| Unknown)? }
            }
            _ => 0,
        };
        self.skip(b'?');
        Ok(least)
    }

    fn part(&mut self) -> Result<Part, Unknown> {
        match self.next().ok_or(Unknown)? {
            '(' => self.group(),
            '[' => self.class().map(|()| Part::Other(None)),
            '\\' => self.escape(),
            '.' | '^' | '$' => Ok(Part::Other(None)),
            letter => Ok(Part::of_letter(letter, false)),
        }
    }

    fn escape(&mut self) -> Result<Part, Unknown> {
        match self.next().ok_or(Unknown)? {
            // With braces, `\b` is a special kind of boundary.
            'b' if self.rest.starts_with('{') => Err(Unknown),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'b' | 'B' | 'A' | 'z' | '<' | '>' => Ok(Part::Other(None)),
            't' => Ok(Part::Letter('\t')),
            'n' => Ok(Part::Letter('\n')),
            'r' => Ok(Part::Letter('\r')),
            letter if letter.is_alphanumeric() => Err(Unknown),
            letter => Ok(Part::of_letter(letter, true)),
        }
    }

    fn group(&mut self) -> Result<Part, Unknown> {
        let ignored_space = self.ignores_space;
        if self.skip(b'?') {
            if self.rest.starts_with("P<") || self.rest.starts_with('<') {
                self.rest = self.rest.split_once('>').ok_or(Unknown)?.1;
            } else if self.flags()? {
                self.sets_flags = true;
                return Ok(Part::Other(None));
            }
        }
        let words = self.alternation()?;
        self.ignores_space = ignored_space;
        if self.skip(b')') { Ok(Part::Other(words)) } else { Err(Unknown) }
    }

    /// The flags of a group. Returns whether they are for the rest of the group around them.
    fn flags(&mut self) -> Result<bool, Unknown> {
        let mut is_set = true;
        loop {
            match self.next() {
                Some('x') => self.ignores_space = is_set,
                Some('-') => is_set = false,
                Some('i' | 'm' | 's' | 'U' | 'u' | 'R') => {}
                Some(':') => return Ok(false),
                Some(')') => return Ok(true),
                _ => return Err(Unknown),
            }
        }
    }

    /// The rest of a class, in which there may be others.
    fn class(&mut self) -> Result<(), Unknown> {
        self.skip_space();
        if self.skip(b'^') {
            self.skip_space();
        }
        // At the start, it has no special meaning.
        self.skip(b']');
        loop {
            match self.next().ok_or(Unknown)? {
                ']' => return Ok(()),
                '[' => self.class()?,
                '\\' => {
                    self.next();
                }
                // The end of a range may be a bracket, which then opens no class.
                '-' if self.rest.trim_start().starts_with('[') => return Err(Unknown),
                // A comment may contain anything.
                '#' if self.ignores_space => return Err(Unknown),
                _ => {}
            }
        }
    }
}
