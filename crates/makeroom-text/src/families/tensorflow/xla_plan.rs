//! XLA's plan of a compiled program's memory, which it prints below an error.
//!
//! ```text
//! BufferAssignment stats:
//!              parameter allocation:   12.00GiB     what the program is called with
//!               constant allocation:         8B
//!         maybe_live_out allocation:    4.00GiB     what it returns
//!      preallocated temp allocation:   26.51GiB     what it needs in between
//!   preallocated temp fragmentation:    4.3KiB (0.00%)
//!                  total allocation:   42.51GiB
//! ```
//!
//! Parameters are on the device before the program starts; the rest is asked for when it does. So the total is what
//! the device must have, and the largest part says what helps.

use std::sync::LazyLock;

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Statement};
use crate::figures::captured_size;
use crate::log::Passage;

/// A plan below this fits any device.
const SMALL: Bytes = Bytes::mib(256);

static PART: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(parameter|constant|maybe_live_out|(?:preallocated )?temp|total) allocation: *([\d.,]+) ?([KMGT]?i?B|bytes)\b",
    )
});

/// What a compiled program needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    parameters: Bytes,
    constants: Bytes,
    results: Bytes,
    temporary: Bytes,
    total: Bytes,
}

impl Plan {
    /// The plan below an error, if there is one.
    pub(super) fn read(passage: &Passage<'_>) -> Option<Self> {
        let mut plan = Self::default();
        for found in passage.onward().flat_map(|line| PART.captures_iter(line)) {
            let Some(bytes) = captured_size(&found, 2) else { continue };
            let part = match &found[1] {
                "parameter" => &mut plan.parameters,
                "constant" => &mut plan.constants,
                "maybe_live_out" => &mut plan.results,
                "total" => &mut plan.total,
                _ => &mut plan.temporary,
            };
            // A second plan in the same passage is of another failure.
            if part.is_zero() {
                *part = bytes;
            }
        }
        let parts = plan.parameters + plan.constants + plan.results + plan.temporary;
        plan.total = if plan.total.is_zero() { parts } else { plan.total };
        (!plan.total.is_zero()).then_some(plan)
    }

    /// Puts the plan against what there is for it, where the text says that.
    pub(super) fn state(self, there_is: Option<Bytes>, facts: &mut Facts) {
        let Self { parameters, results, temporary, total, .. } = self;
        facts.evidence.push(format!(
            "XLA planned {total} for the program: {parameters} of parameters, {results} of results, {temporary} of temporary memory"
        ));
        let parts = format!(
            "The compiled program needs {total} in total: {parameters} for its arguments, {results} for its results and {temporary} for temporary data"
        );
        let (certainty, summary) = match there_is {
            Some(there_is) if total > there_is => {
                (Certainty::Likely, format!("{parts}. This device has {there_is} for it."))
            }
            Some(_) => return,
            // It fits any device that is not full already.
            None if total < SMALL => return,
            None => (
                Certainty::Possible,
                format!("{parts}; the log does not say how much the device has for it."),
            ),
        };
        let stated = Statement::new(Cause::LiveDataFillsDevice, certainty, summary).mended_by(self.fixes());
        facts.statements.push(Statement { bytes: Some(total), ..stated });
    }

    /// What helps, by the part it makes smaller, the largest first.
    fn fixes(self) -> Vec<Fix> {
        let donated = self.parameters.min(self.results);
        let mut fixes = Vec::new();
        if !self.temporary.is_zero() {
            fixes.push((
                self.temporary,
                Fix::new(format!(
                    "use a smaller batch, or recompute activations instead of keeping them: the program needs {} for temporary data",
                    self.temporary
                ))
                .command("f = jax.checkpoint(f)"),
            ));
        }
        if !donated.is_zero() {
            fixes.push((
                donated,
                Fix::new(
                    "donate arguments that are not needed afterward, so that results reuse their memory",
                )
                .command("jax.jit(step, donate_argnums=(0,))")
                .frees(donated),
            ));
        }
        if !self.parameters.is_zero() {
            fixes.push((
                self.parameters,
                Fix::new(format!(
                    "keep the {} of parameters in 16-bit precision, or shard them across several devices: jax.sharding",
                    self.parameters
                )),
            ));
        }
        fixes.sort_compact_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        fixes.into_iter().map(|(_, fix)| fix).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    const STATS: &str = "BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    6.00GiB\n              constant allocation:         8B\n        maybe_live_out allocation:    2.00GiB\n     preallocated temp allocation:   10.00GiB\n  preallocated temp fragmentation:   320.0KiB (0.00%)\n                 total allocation:   18.00GiB\n              total fragmentation:   2.00GiB (11.1%)\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 5.00GiB";

    #[test]
    fn the_parts_are_evidence_and_the_largest_decides_what_helps() {
        let facts = facts_in(&format!(
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 10737418240 bytes.\n{STATS}"
        ))
        .unwrap();
        assert!(
            facts.evidence[0].contains("18.00 GiB") && facts.evidence[0].contains("6.00 GiB of parameters")
        );
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::LiveDataFillsDevice, Certainty::Possible));
        assert!(stated.fixes[0].action.contains("10.00 GiB"), "{:?}", stated.fixes);
        assert!(stated.fixes.iter().any(|fix| fix.frees == Some(Bytes::gib(2))), "{:?}", stated.fixes);
    }

    #[test]
    fn a_small_plan_is_not_what_fills_the_device() {
        let text = |unit: &str| {
            format!(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 524288 bytes.\n{}",
                STATS.replace("GiB", unit)
            )
        };
        for (unit, count) in [("KiB", 0), ("MiB", 0), ("GiB", 1)] {
            let facts = facts_in(&text(unit)).unwrap();
            assert_eq!(facts.statements.len(), count, "{unit}: {:?}", facts.statements);
            assert!(facts.evidence[0].starts_with("XLA planned"), "{:?}", facts.evidence);
        }
    }

    #[test]
    fn the_pool_that_the_runtime_took_is_what_there_is() {
        let text = |pool: u64| {
            format!(
                "I external/xla/xla/pjrt/gpu/gpu_helpers.cc:129] XLA backend allocating {} bytes on device 0 for BFCAllocator.\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 10737418240 bytes.\n{STATS}",
                pool << 30
            )
        };
        let stated = |pool: u64| facts_in(&text(pool)).unwrap().statements;
        assert_eq!(stated(17)[0].certainty, Certainty::Likely);
        assert!(stated(17)[0].summary.contains("17.00 GiB"));
        assert!(stated(19).is_empty());
    }

    #[test]
    fn a_plan_beyond_what_there_is_decides() {
        let text = format!(
            "Can't reduce memory use below 12.00GiB (12884901888 bytes) by rematerialization; only reduced to 18.00GiB (19327352832 bytes)\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 10737418240 bytes.\n{STATS}"
        );
        let facts = facts_in(&text).unwrap();
        let stated =
            facts.statements.iter().find(|stated| stated.cause == Cause::LiveDataFillsDevice).unwrap();
        assert_eq!(stated.certainty, Certainty::Likely);
        assert!(stated.summary.contains("12.00 GiB"), "{}", stated.summary);
    }
}
