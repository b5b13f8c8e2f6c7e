//! The test suite that every placement policy must pass, whatever its order.
//!
//! It is a function, not a test, so that other crates can run it on their own policies. It runs everything under the
//! checker in `validate` and returns the first violation instead of panicking.

use crate::placement::{Offset, Placement};
use crate::validate::{Validated, Violation};

/// Large enough for every grain and splitting rule, and a multiple of every grain.
const REGION: u64 = 1 << 30;
/// A request that policies with a coarse splitting rule also place exactly: two of them fill a hole of twice the size.
const BLOCK: u64 = 1 << 20;

/// Runs the suite on new policies; returns the first violation.
pub fn conformance<P: Placement>(make: impl Fn() -> P) -> Result<(), Violation> {
    let scenarios: [(&str, Scenario<P>); 9] = [
        ("an empty space places nothing", empty),
        ("a region can be filled", fill),
        ("unknown offsets and double frees change nothing", wrong_frees),
        ("freed neighbors merge into one hole, in any order", coalesce),
        ("alignments are respected", align),
        ("blocks do not cross regions", regions),
        ("regions without blocks can be removed", shrink),
        ("absurd requests fail", absurd),
        ("the statistics are correct in a long run of mixed sizes", mixed),
    ];
    for (what, scenario) in scenarios {
        let mut policy = Validated::new(make());
        scenario(&mut policy).map_err(|Failed(why)| Violation(format!("{what}: {why}")))?;
        policy.verdict().map_err(|violation| Violation(format!("{what}: {violation}")))?;
    }
    Ok(())
}

type Scenario<P> = fn(&mut Validated<P>) -> Result<(), Failed>;

/// Why a scenario failed.
struct Failed(String);

fn require(is_right: bool, wrong: &str) -> Result<(), Failed> {
    if is_right { Ok(()) } else { Err(Failed(wrong.to_owned())) }
}

fn place<P: Placement>(policy: &mut Validated<P>, size: u64, alignment: u64) -> Result<Offset, Failed> {
    policy.place(size, alignment).ok_or_else(|| Failed(format!("placing {size} bytes failed")))
}

fn free<P: Placement>(policy: &mut Validated<P>, offset: Offset) -> Result<(), Failed> {
    policy.free(offset).map(|_| ()).map_err(|error| Failed(error.to_string()))
}

fn grow<P: Placement>(policy: &mut Validated<P>, size: u64) -> Result<(), Failed> {
    policy.grow(size).map(|_| ()).ok_or_else(|| Failed(format!("adding a region of {size} bytes failed")))
}

fn empty<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    require(policy.place(1, 1).is_none(), "something was placed")?;
    require(policy.free(Offset(0)).is_err(), "something was freed")?;
    require(policy.grow(0).is_none(), "an empty region was added")?;
    require(policy.shrink().is_empty(), "a region was removed")
}

fn fill<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, REGION)?;
    for _ in 0..REGION / BLOCK {
        place(policy, BLOCK, 1)?;
    }
    require(policy.report().free == 0, "something is left")?;
    require(policy.place(1, 1).is_none(), "something was placed in a full space")
}

fn wrong_frees<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, REGION)?;
    let block = place(policy, BLOCK, 1)?;
    require(policy.free(Offset(block.0 + 1)).is_err(), "the middle of a block was freed")?;
    require(policy.free(Offset(u64::MAX)).is_err(), "the end of the address space was freed")?;
    free(policy, block)?;
    require(policy.free(block).is_err(), "a block was freed twice")?;
    require(policy.report().used == 0, "something is still used")
}

fn coalesce<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, 4 * BLOCK)?;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut blocks = Vec::new();
        for _ in 0..4 {
            blocks.push(place(policy, BLOCK, 1)?);
        }
        for index in order {
            free(policy, blocks[index])?;
        }
        let whole = place(policy, 4 * BLOCK, 1)?;
        free(policy, whole)?;
    }
    Ok(())
}

fn align<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, REGION)?;
    for power in 0..22 {
        place(policy, 1, 1)?;
        place(policy, 3, 1 << power)?;
    }
    require(
        policy.place(1, 0).is_none() && policy.place(1, 3).is_none(),
        "an impossible alignment was accepted",
    )?;
    require(
        policy.place(BLOCK, 1 << 63).is_none_or(|offset| offset.0 == 0),
        "a huge alignment was not respected",
    )
}

fn regions<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, BLOCK)?;
    grow(policy, BLOCK)?;
    require(policy.place(2 * BLOCK, 1).is_none(), "a block crosses two regions")?;
    grow(policy, 2 * BLOCK)?;
    let large = place(policy, 2 * BLOCK, 1)?;
    let small = [place(policy, BLOCK, 1)?, place(policy, BLOCK, 1)?];
    for block in [small[1], large, small[0]] {
        free(policy, block)?;
    }
    require(policy.report().holes == 3, "holes of two regions were merged")
}

fn shrink<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    for _ in 0..3 {
        grow(policy, BLOCK)?;
    }
    let blocks = [place(policy, BLOCK, 1)?, place(policy, BLOCK, 1)?, place(policy, BLOCK, 1)?];
    require(policy.shrink().is_empty(), "a region in use was removed")?;
    free(policy, blocks[1])?;
    require(policy.shrink().len() == 1, "the unused region was not removed")?;
    require(policy.place(BLOCK, 1).is_none(), "a removed region was used")?;
    grow(policy, BLOCK)?;
    place(policy, BLOCK, 1).map(|_| ())
}

fn absurd<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    grow(policy, REGION)?;
    for size in [REGION + 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for alignment in [1, 512, 1 << 63] {
            require(policy.place(size, alignment).is_none(), "an absurd request succeeded")?;
        }
    }
    require(policy.grow(u64::MAX).is_none(), "a region beyond the address space was added")?;
    let nothing = place(policy, 0, 1)?;
    require(policy.report().used > 0, "an empty block shares its offset")?;
    free(policy, nothing)
}

fn mixed<P: Placement>(policy: &mut Validated<P>) -> Result<(), Failed> {
    // A linear congruential generator: deterministic, and no dependency.
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut blocks = Vec::new();
    for _ in 0..2000 {
        match random(16) {
            0 => grow(policy, (1 + random(8)) << 20)?,
            1 if random(8) == 0 => drop(policy.shrink()),
            2..=8 if !blocks.is_empty() => {
                let index = random(blocks.len() as u64) as usize;
                free(policy, blocks.swap_remove(index))?;
            }
            _ => {
                let scale = random(21);
                let size = random(1 << scale) + 1;
                blocks.extend(policy.place(size, 1 << random(14)));
            }
        }
    }
    for block in blocks {
        free(policy, block)?;
    }
    policy.shrink();
    require(policy.report().capacity == 0, "a space without blocks is not empty")
}
