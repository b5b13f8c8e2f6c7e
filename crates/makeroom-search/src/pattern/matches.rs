//! Matches and their groups, as parts of the searched text.

use std::ops::{Index, Range};

use regex_automata::util::captures;

/// The part of a text that a pattern or one of its groups matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<'text> {
    text: &'text str,
    start: usize,
    end: usize,
}

impl<'text> Match<'text> {
    pub(super) fn new(text: &'text str, range: Range<usize>) -> Self {
        Self { text, start: range.start, end: range.end }
    }

    /// Where it starts in the text.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Where it ends in the text.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Its part of the text, as a range.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Its part of the text.
    pub fn as_str(&self) -> &'text str {
        &self.text[self.range()]
    }
}

/// A match with its groups. Indexing returns the text of a group, or an empty string if the group did not match.
#[derive(Clone, Debug)]
pub struct Captures<'text> {
    text: &'text str,
    groups: captures::Captures,
}

impl<'text> Captures<'text> {
    pub(super) fn new(text: &'text str, groups: captures::Captures) -> Self {
        Self { text, groups }
    }

    /// Group 0 is the whole match.
    pub fn get(&self, group: usize) -> Option<Match<'text>> {
        self.groups.get_group(group).map(|span| Match::new(self.text, span.range()))
    }

    /// The group with this name, if it matched.
    pub fn name(&self, name: &str) -> Option<Match<'text>> {
        self.groups.get_group_by_name(name).map(|span| Match::new(self.text, span.range()))
    }

    /// All groups, with the whole match first.
    pub fn iter(&self) -> impl Iterator<Item = Option<Match<'text>>> {
        self.groups.iter().map(|span| span.map(|span| Match::new(self.text, span.range())))
    }
}

impl Index<usize> for Captures<'_> {
    type Output = str;

    fn index(&self, group: usize) -> &str {
        debug_assert!(group < self.groups.group_len(), "the pattern has no group {group}");
        self.get(group).map_or("", |found| found.as_str())
    }
}

impl Index<&str> for Captures<'_> {
    type Output = str;

    fn index(&self, name: &str) -> &str {
        debug_assert!(
            self.groups.group_info().all_names().any(|(.., known)| known == Some(name)),
            "no group {name}"
        );
        self.name(name).map_or("", |found| found.as_str())
    }
}
