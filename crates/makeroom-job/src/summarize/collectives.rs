//! The collective that timed out, from the line of PyTorch's watchdog:
//!
//! ```text
//! [PG ID 0 PG GUID 0(default_pg) Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81,
//! OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.
//! ```
//!
//! The ID of a process group counts the groups of one rank; only the GUID is the same on all ranks. Older versions print
//! neither.

use crate::tables::Collective;

/// Length of the longest name of a group or operation that is kept, in characters.
const LONGEST: usize = 64;
/// Process groups of a rank whose collectives are kept.
const MOST_GROUPS: usize = 8;

/// The collective in a line.
pub(super) fn read(line: &str) -> Option<Collective> {
    let (before, work) = line.split_once("WorkNCCL(")?;
    let value = |name: &str| {
        let (_, rest) = work.split_once(name)?;
        rest.split([',', ')']).next().map(str::trim).filter(|value| !value.is_empty())
    };
    let number = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok());
    let group = before.split_once("[PG ").and_then(|(_, rest)| rest.split_once(" Rank "));
    let group = group.map(|(group, _)| group.split_once("GUID ").map_or(group, |(_, guid)| guid));
    Some(Collective {
        group: group.map(clipped),
        number: number("SeqNum=")?,
        operation: value("OpType=").map(clipped),
        elements: number("NumelIn=").zip(number("NumelOut=")),
    })
}

/// Adds a collective to those of a rank: the first of each group, which the watchdog reports before later ones.
pub(super) fn add(known: &mut Vec<Collective>, new: Collective) {
    if let Some(known) = known.iter_mut().find(|known| known.group == new.group) {
        if new.number < known.number {
            *known = new;
        }
    } else if known.len() < MOST_GROUPS {
        known.push(new);
    }
}

fn clipped(text: &str) -> String {
    text.trim().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdogs_line_is_read() {
        let line = "[E1117 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 2] Watchdog caught collective \
            operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=64, NumelOut=128, Timeout(ms)=600000) ran for";
        let expected = Collective {
            group: Some("0(default_pg)".to_owned()),
            number: 81,
            operation: Some("ALLREDUCE".to_owned()),
            elements: Some((64, 128)),
        };
        assert_eq!(read(line), Some(expected.clone()));
        // The ID of a group differs between ranks.
        assert_eq!(read(&line.replace("PG ID 0", "PG ID 3")), Some(expected.clone()));
        let old = read("[E] [PG 3 Rank 2] Watchdog caught WorkNCCL(SeqNum=9)");
        assert_eq!(old.and_then(|found| found.group).as_deref(), Some("3"));
        let short = read("timeout: WorkNCCL(SeqNum=9)");
        assert_eq!(short.map(|found| (found.number, found.operation, found.elements)), Some((9, None, None)));
        for line in
            ["", "WorkNCCL(", "WorkNCCL(SeqNum=x)", "WorkNCCL(SeqNum=99999999999999999999)", "[PG WorkNCCL("]
        {
            assert_eq!(read(line), None, "{line}");
        }
        let mut known = vec![expected.clone()];
        add(&mut known, Collective { number: 82, ..expected.clone() });
        add(&mut known, Collective { number: 80, ..expected.clone() });
        for group in 0..100 {
            add(&mut known, Collective { group: Some(group.to_string()), ..expected.clone() });
        }
        assert_eq!((known[0].number, known.len()), (80, MOST_GROUPS));
    }
}
