//! The account of a device's memory, built so that it adds up.
//!
//! For one device:
//!
//! ```text
//! total              = Σ lines + unaccounted
//! a line with parts  = Σ its parts
//! ```
//!
//! Both hold by construction: a line with parts has no size of its own, and `unaccounted` is what is left of the
//! total. It can be negative when the figures in the input contradict each other or were rounded; it is shown as
//! it is.

use makeroom_core::{Bytes, DeviceIndex};

/// The account of one device (or of one limit on it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    device: Option<DeviceIndex>,
    name: String,
    total: Option<Bytes>,
    lines: Vec<LedgerLine>,
}

/// One line of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    what: String,
    own: Bytes,
    note: Option<String>,
    parts: Vec<Self>,
}

impl LedgerLine {
    /// A line that stands for itself.
    pub fn new(what: impl Into<String>, bytes: Bytes) -> Self {
        Self { what: what.into(), own: bytes, note: None, parts: Vec::new() }
    }

    /// A line that is the sum of its parts.
    pub fn sum(what: impl Into<String>, parts: Vec<Self>) -> Self {
        Self { what: what.into(), own: Bytes::ZERO, note: None, parts }
    }

    /// A remark next to the bar.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// What the line counts.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Its size: the sum of its parts where it has some.
    pub fn bytes(&self) -> Bytes {
        if self.parts.is_empty() { self.own } else { self.parts.iter().map(Self::bytes).sum() }
    }

    /// The remark.
    pub fn remark(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What it is made of.
    pub fn parts(&self) -> &[Self] {
        &self.parts
    }
}

impl Ledger {
    /// An account of `total` bytes. Without a total the account is only of what is listed.
    pub fn new(
        name: impl Into<String>,
        device: Option<DeviceIndex>,
        total: Option<Bytes>,
        lines: Vec<LedgerLine>,
    ) -> Self {
        Self { device, name: name.into(), total, lines }
    }

    /// The device it is about.
    pub fn device(&self) -> Option<DeviceIndex> {
        self.device
    }

    /// What the total is a total of ("GPU 0", "limit of GPU 0").
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The total, if the input gives one.
    pub fn total(&self) -> Option<Bytes> {
        self.total
    }

    /// The lines, in the order to show them.
    pub fn lines(&self) -> &[LedgerLine] {
        &self.lines
    }

    /// What no line explains: total − Σ lines. Zero without a total.
    pub fn unaccounted(&self) -> i64 {
        self.total.map_or(0, |total| total.difference(self.lines.iter().map(LedgerLine::bytes).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_unaccounted_add_up_to_the_total() {
        let reserved = LedgerLine::sum(
            "framework",
            vec![LedgerLine::new("live", Bytes::new(50)), LedgerLine::new("cached", Bytes::new(20))],
        );
        assert_eq!(reserved.bytes(), Bytes::new(70));
        let free = LedgerLine::new("free", Bytes::new(25));
        let ledger = Ledger::new("GPU 0", None, Some(Bytes::new(100)), vec![reserved, free]);
        assert_eq!(ledger.unaccounted(), 5);
    }

    #[test]
    fn contradicting_figures_show_as_a_negative_rest() {
        let lines = vec![LedgerLine::new("free", Bytes::new(120))];
        assert_eq!(Ledger::new("GPU 0", None, Some(Bytes::new(100)), lines).unaccounted(), -20);
    }
}
