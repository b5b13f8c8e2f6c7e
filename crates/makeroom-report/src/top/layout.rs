//! Divides the rows of the terminal among the parts of the screen, from top to bottom.
//!
//! ```text
//! rows = title + devices + table + sites + keys
//! ```
//!
//! If everything fits, the table gets the remaining rows. If not, rows are assigned in the order of [`ORDER`] or
//! [`ORDER_WITH_SITES`]: first three to the table, then a few to each part, then as many as each part needs.

/// The parts of the screen.
pub(super) const PARTS: usize = 5;

#[derive(Clone, Copy)]
enum Part {
    Title,
    Devices,
    Table,
    Sites,
    Keys,
}

use Part::{Devices, Keys, Sites, Table, Title};

const ALL: usize = usize::MAX;

/// A part, and the maximum number of rows that it has after this step.
const ORDER: &[(Part, usize)] =
    &[(Table, 3), (Title, 1), (Devices, 3), (Keys, 1), (Devices, ALL), (Table, ALL)];

/// The order while sites are shown.
const ORDER_WITH_SITES: &[(Part, usize)] = &[
    (Table, 3),
    (Title, 1),
    (Devices, 1),
    (Sites, 1),
    (Keys, 1),
    (Sites, 3),
    (Devices, 3),
    (Sites, ALL),
    (Devices, ALL),
    (Table, ALL),
];

/// Number of rows of each part. `devices` and `sites` are the rows that these parts need; `sites` is 0 if hidden.
pub(super) fn divide(rows: usize, devices: usize, sites: usize) -> [usize; PARTS] {
    let wanted = [1, devices, ALL, sites, 1];
    let mut given = [0; PARTS];
    let mut left = rows;
    for &(part, limit) in if sites > 0 { ORDER_WITH_SITES } else { ORDER } {
        let part = part as usize;
        let more = wanted[part].min(limit).saturating_sub(given[part]).min(left);
        given[part] += more;
        left -= more;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn the_table_gets_the_rest() {
        assert_eq!(divide(24, 2, 0), [1, 2, 20, 0, 1]);
        assert_eq!(divide(24, 2, 10), [1, 2, 10, 10, 1]);
        assert_eq!(divide(7, 2, 0), [1, 2, 3, 0, 1]);
    }

    #[test]
    fn low_terminals_show_the_table_first() {
        let expected = [
            [0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 2, 0, 0],
            [0, 0, 3, 0, 0],
            [1, 0, 3, 0, 0],
            [1, 1, 3, 0, 0],
            [1, 2, 3, 0, 0],
            [1, 3, 3, 0, 0],
            [1, 3, 3, 0, 1],
            [1, 4, 3, 0, 1],
        ];
        for (rows, expected) in expected.into_iter().enumerate() {
            assert_eq!(divide(rows, 9, 0), expected);
        }
        assert_eq!(divide(7, 9, 3), [1, 1, 3, 1, 1]);
        assert_eq!(divide(12, 9, 6), [1, 3, 3, 4, 1]);
        assert_eq!(divide(20, 9, 10), [1, 5, 3, 10, 1]);
    }

    #[test]
    fn every_row_belongs_to_one_part() {
        for rows in 0..60 {
            for devices in 1..60 {
                for sites in 0..11 {
                    let given = divide(rows, devices, sites);
                    assert_eq!(given.iter().sum::<usize>(), rows, "{rows} {devices} {sites}");
                    assert!(given[1] <= devices && given[3] <= sites, "{given:?}");
                }
            }
        }
    }
}
