//! Any bytes as a CSV file of buffers: no panic, no hang; what was read is written and read again unchanged, and every
//! plan is valid.
//!
//! ```text
//! cargo +nightly fuzz run plan_csv -- -max_len=4096 -timeout=5
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use makeroom_plan::{Budget, Outcome, Problem, csv, plan, validate};

fuzz_target!(|bytes: &[u8]| {
    let with_header = [b"id,lower,upper,size,alignment\n", bytes].concat();
    for file in [bytes, &with_header] {
        let Ok(table) = csv::read(file) else { continue };
        let problem = Problem { buffers: table.buffers.clone(), capacity: None };
        let budget = Budget { steps: 1_000_000, ..Budget::default() };
        let Ok(Outcome::Planned { plan, .. }) = plan(&problem, &budget) else { continue };
        validate(&problem, &plan).unwrap();
        let mut solution = Vec::new();
        table.write(&plan.offsets, &mut solution).unwrap();
        let again = csv::read(&solution[..]).unwrap();
        assert_eq!((again.buffers, again.offsets), (table.buffers, Some(plan.offsets)));
    }
});
