//! Bytes by kind at one moment: Σ kinds = live bytes, and Σ rules of a kind = its bytes.

use std::collections::BTreeMap;

use makeroom_core::Bytes;

use crate::{Certainty, Kind, Rule};

/// Live bytes by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    kinds: BTreeMap<Kind, KindTotal>,
}

/// The live memory of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindTotal {
    /// Live bytes.
    pub bytes: Bytes,
    /// Number of live blocks.
    pub blocks: u64,
    /// Bytes by rule.
    pub rules: BTreeMap<Rule, Bytes>,
}

impl Totals {
    /// Adds an allocation.
    pub fn add(&mut self, kind: Kind, rule: Rule, bytes: Bytes) {
        let total = self.kinds.entry(kind).or_default();
        total.bytes += bytes;
        total.blocks += 1;
        *total.rules.entry(rule).or_default() += bytes;
    }

    /// The live memory of a kind.
    pub fn get(&self, kind: Kind) -> Option<&KindTotal> {
        self.kinds.get(&kind)
    }

    /// The live bytes of a kind.
    pub fn bytes(&self, kind: Kind) -> Bytes {
        self.get(kind).map_or(Bytes::ZERO, |total| total.bytes)
    }

    /// All kinds that occur, in the order of reports.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &KindTotal)> {
        self.kinds.iter().map(|(&kind, total)| (kind, total))
    }

    /// All live bytes.
    pub fn live(&self) -> Bytes {
        self.kinds.values().map(|total| total.bytes).sum()
    }
}

impl KindTotal {
    /// The rule that determined most of it.
    pub fn main_rule(&self) -> Option<Rule> {
        self.rules
            .iter()
            .max_by_key(|&(rule, &bytes)| (bytes, std::cmp::Reverse(*rule)))
            .map(|(&rule, _)| rule)
    }

    /// The certainty of the rule that determined most of it.
    pub fn certainty(&self) -> Certainty {
        self.main_rule().map_or(Certainty::Certain, Rule::certainty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_add_up_and_the_largest_rule_leads() {
        let mut totals = Totals::default();
        totals.add(Kind::Gradients, Rule::OutlivedBackward, Bytes::new(10));
        totals.add(Kind::Gradients, Rule::FreedByZeroGrad, Bytes::new(30));
        totals.add(Kind::Unknown, Rule::NoRule, Bytes::new(5));
        assert_eq!(totals.live(), Bytes::new(45));
        let gradients = totals.get(Kind::Gradients).unwrap();
        assert_eq!((gradients.bytes, gradients.blocks), (Bytes::new(40), 2));
        assert_eq!(gradients.main_rule(), Some(Rule::FreedByZeroGrad));
        assert_eq!(gradients.certainty(), Certainty::Certain);
        assert_eq!(totals.bytes(Kind::Inputs), Bytes::ZERO);
    }
}
