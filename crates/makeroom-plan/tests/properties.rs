//! Every plan is valid, on random problems and on mutated ones: no two buffers overlap in time and memory, offsets are
//! aligned, and a capacity is kept. A plan that exceeds the capacity is never returned as one that fits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use makeroom_plan::{Budget, Buffer, Outcome, Problem, csv, max_load, plan, validate};
use proptest::prelude::*;

/// A change to a file, as a user or a bug might make it.
#[derive(Debug, Clone)]
enum Mutation {
    /// Replaces a field of a row with a number.
    Field { row: usize, column: usize, value: u64 },
    /// Repeats a row.
    Repeat { row: usize },
    /// Removes a byte.
    Byte { position: usize },
    /// Swaps the columns of the header.
    Header { one: usize, other: usize },
}

const COLUMNS: [&str; 5] = ["id", "lower", "upper", "size", "alignment"];

fn mutation() -> impl Strategy<Value = Mutation> {
    let value = prop_oneof![0..64_u64, Just(u64::MAX), Just(1 << 62), any::<u64>()];
    prop_oneof![
        4 => (any::<usize>(), 0..5_usize, value)
            .prop_map(|(row, column, value)| Mutation::Field { row, column, value }),
        2 => any::<usize>().prop_map(|row| Mutation::Repeat { row }),
        1 => any::<usize>().prop_map(|position| Mutation::Byte { position }),
        1 => (0..5_usize, 0..5_usize).prop_map(|(one, other)| Mutation::Header { one, other }),
    ]
}

/// The rows of a file: lifetimes, sizes and alignments as real programs have them.
fn rows() -> impl Strategy<Value = Vec<[u64; 5]>> {
    let row = (0..100_u64, 1..40_u64, 1..200_u64, 0..10_u32)
        .prop_map(|(lower, length, size, shift)| [lower, lower + length, size * 64, 1 << shift]);
    prop::collection::vec(row, 1..60).prop_map(|rows| {
        let numbered = rows.into_iter().enumerate();
        numbered.map(|(id, [lower, upper, size, align])| [id as u64, lower, upper, size, align]).collect()
    })
}

fn mutated(mut rows: Vec<[u64; 5]>, mutations: &[Mutation]) -> Vec<u8> {
    let mut header = COLUMNS;
    let mut removed = Vec::new();
    for mutation in mutations {
        match *mutation {
            Mutation::Field { row, column, value } => {
                let row = row % rows.len();
                rows[row][column] = value;
            }
            Mutation::Repeat { row } => rows.push(rows[row % rows.len()]),
            Mutation::Byte { position } => removed.push(position),
            Mutation::Header { one, other } => header.swap(one, other),
        }
    }
    let mut text = header.join(",");
    for row in rows {
        text.push('\n');
        text.push_str(&row.map(|number| number.to_string()).join(","));
    }
    let mut bytes = text.into_bytes();
    for position in removed {
        bytes.remove(position % bytes.len());
    }
    bytes
}

/// Plans a problem and checks whatever comes back.
fn check(problem: &Problem) -> Result<(), TestCaseError> {
    let budget = Budget { steps: 500_000, ..Budget::default() };
    match plan(problem, &budget) {
        Ok(Outcome::Planned { plan, lower_bound }) => {
            prop_assert_eq!(validate(problem, &plan), Ok(()));
            prop_assert!(lower_bound <= plan.peak);
        }
        Ok(Outcome::GaveUp { best, lower_bound, .. }) => {
            let without_capacity = Problem { capacity: None, buffers: problem.buffers.clone() };
            prop_assert_eq!(validate(&without_capacity, &best), Ok(()));
            prop_assert!(best.peak > problem.capacity.unwrap());
            prop_assert!(lower_bound <= best.peak);
        }
        Ok(Outcome::Impossible(conflict)) => {
            prop_assert!(!conflict.buffers.is_empty());
            prop_assert!(conflict.buffers.iter().all(|&buffer| buffer < problem.buffers.len()));
        }
        // Sizes that do not fit in 62 bits together, or an alignment that is not a power of two.
        Err(_) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_of_mutated_files_are_valid(
        rows in rows(),
        mutations in prop::collection::vec(mutation(), 0..6),
        slack in prop::option::of(0..4096_u64),
    ) {
        if let Ok(table) = csv::read(&mutated(rows, &mutations)[..]) {
            let load = max_load(&table.buffers).map_or(0, |load| load.bytes);
            let capacity = slack.map(|slack| u64::try_from(load).unwrap_or(u64::MAX).saturating_add(slack));
            check(&Problem { buffers: table.buffers, capacity })?;
        }
    }

    #[test]
    fn plans_of_random_buffers_are_valid(
        buffers in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>(), 0..64_u32, 0..64_u32).prop_map(|(lower, upper, size, small, shift)| {
                Buffer { lower, upper, size: size >> small, alignment: 1 << shift }
            }),
            0..12,
        ),
        capacity: Option<u64>,
    ) {
        check(&Problem { buffers, capacity })?;
    }

    /// Real files have no slack to spare: many buffers of few sizes, all of them live for a while.
    #[test]
    fn plans_of_layers_are_valid(
        sizes in prop::collection::vec(1..16_u64, 1..5),
        layers in 1..60_u64,
        alignment in 0..12_u32,
        capacity: bool,
    ) {
        let layer = |layer: u64| {
            let sizes = sizes.iter().enumerate();
            sizes.map(move |(nth, size)| Buffer::new(layer, layer + 2 + nth as u64, size << 9).aligned(1 << alignment))
        };
        let buffers: Vec<Buffer> = (0..layers).flat_map(layer).collect();
        let capacity = capacity.then(|| max_load(&buffers).unwrap().bytes as u64);
        check(&Problem { buffers, capacity })?;
    }
}
