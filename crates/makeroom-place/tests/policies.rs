//! Runs every policy through the suite, through random steps under the checker, and against a naive implementation.

use makeroom_place::{BestFit, Bfc, FirstFit, Placement, REGION_ALIGNMENT, Validated, conformance};
use proptest::prelude::*;

#[test]
fn every_policy_conforms() {
    for grain in [1, 256, 512] {
        conformance(|| BestFit::new(grain)).unwrap();
        conformance(|| FirstFit::new(grain)).unwrap();
        conformance(|| Bfc::new(grain)).unwrap();
    }
}

/// A step of a random run. Frees identify a block by its index among the live ones.
#[derive(Clone, Debug)]
enum Step {
    Place { size: u64, alignment: u64 },
    Free { index: usize },
    Grow { size: u64 },
    Shrink,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (1_u64..200_000, 0_u32..12)
        .prop_map(|(size, power)| Step::Place { size, alignment: if power < 9 { 1 } else { 1 << power } });
    let step = prop_oneof![
        6 => place,
        5 => (0_usize..1000).prop_map(|index| Step::Free { index }),
        1 => (1_u64..2_000_000).prop_map(|size| Step::Grow { size }),
        1 => Just(Step::Shrink),
    ];
    prop::collection::vec(step, 1..300).prop_map(|mut steps| {
        steps.insert(0, Step::Grow { size: 4 << 20 });
        steps
    })
}

/// Runs the steps and returns the policy's results.
fn run(policy: &mut dyn Placement, steps: &[Step]) -> Vec<Option<u64>> {
    let mut live = Vec::new();
    let mut answers = Vec::new();
    for step in steps {
        match *step {
            Step::Place { size, alignment } => {
                let placed = policy.place(size, alignment);
                live.extend(placed);
                answers.push(placed.map(|offset| offset.0));
            }
            Step::Free { index } if !live.is_empty() => {
                let freed = policy.free(live.swap_remove(index % live.len()));
                answers.push(freed.ok());
            }
            Step::Free { .. } => {}
            Step::Grow { size } => drop(policy.grow(size)),
            Step::Shrink => answers.push(Some(policy.shrink().iter().map(|region| region.size).sum())),
        }
    }
    answers
}

/// A textbook implementation of a policy: a list of pieces, searched from end to end.
struct Naive {
    grain: u64,
    pieces: Vec<Piece>,
    end: u64,
    rule: Rule,
}

#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    size: u64,
    region: u64,
    is_free: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    BestFit,
    FirstFit,
    Bfc,
}

impl Naive {
    fn run(grain: u64, rule: Rule, steps: &[Step]) -> Vec<Option<u64>> {
        let mut naive = Self { grain, pieces: Vec::new(), end: 0, rule };
        let mut live = Vec::new();
        let mut answers = Vec::new();
        for step in steps {
            match *step {
                Step::Place { size, alignment } => {
                    let placed = naive.place(size, alignment);
                    live.extend(placed);
                    answers.push(placed);
                }
                Step::Free { index } if !live.is_empty() => {
                    let offset = live.swap_remove(index % live.len());
                    answers.push(naive.free(offset));
                }
                Step::Free { .. } => {}
                Step::Grow { size } => naive.grow(size),
                Step::Shrink => answers.push(Some(naive.shrink())),
            }
        }
        answers
    }

    fn place(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let size = size.next_multiple_of(self.grain);
        let room = |piece: &Piece| {
            let start = piece.offset.next_multiple_of(alignment);
            piece.is_free && start + size <= piece.offset + piece.size
        };
        let fitting = self.pieces.iter().enumerate().filter(|(_, piece)| room(piece));
        let (index, &piece) = fitting.min_by_key(|(_, piece)| match self.rule {
            Rule::FirstFit => (0, piece.offset),
            Rule::BestFit | Rule::Bfc => (piece.size, piece.offset),
        })?;
        let start = piece.offset.next_multiple_of(alignment);
        let available = piece.offset + piece.size - start;
        let is_whole = self.rule == Rule::Bfc && available < 2 * size && available - size < 128 << 20;
        let held = if is_whole { available } else { size };
        let cut = [
            Piece { size: start - piece.offset, ..piece },
            Piece { offset: start, size: held, is_free: false, ..piece },
            Piece { offset: start + held, size: available - held, ..piece },
        ];
        self.pieces.splice(index..=index, cut.into_iter().filter(|piece| piece.size > 0));
        Some(start)
    }

    fn free(&mut self, offset: u64) -> Option<u64> {
        let piece = self.pieces.iter_mut().find(|piece| piece.offset == offset && !piece.is_free)?;
        let size = piece.size;
        piece.is_free = true;
        self.merge();
        Some(size)
    }

    fn merge(&mut self) {
        self.pieces.dedup_by(|second, first| {
            let is_one = first.is_free && second.is_free && first.region == second.region;
            if is_one {
                first.size += second.size;
            }
            is_one
        });
    }

    fn grow(&mut self, size: u64) {
        let size = size / self.grain * self.grain;
        if size > 0 {
            let piece = Piece { offset: self.end, size, region: self.end, is_free: true };
            self.pieces.push(piece);
            self.end = (self.end + size).next_multiple_of(REGION_ALIGNMENT);
        }
    }

    fn shrink(&mut self) -> u64 {
        let used: Vec<u64> =
            self.pieces.iter().filter(|piece| !piece.is_free).map(|piece| piece.region).collect();
        let (kept, gone): (Vec<Piece>, Vec<Piece>) =
            self.pieces.iter().copied().partition(|piece| used.contains(&piece.region));
        self.pieces = kept;
        gone.iter().map(|piece| piece.size).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_referee_finds_nothing(steps in steps(), power in 0_u32..10) {
        let grain = 1 << power;
        let mut best = Validated::new(BestFit::new(grain));
        let mut first = Validated::new(FirstFit::new(grain));
        let mut bins = Validated::new(Bfc::new(grain));
        run(&mut best, &steps);
        run(&mut first, &steps);
        run(&mut bins, &steps);
        prop_assert_eq!(best.verdict(), Ok(()));
        prop_assert_eq!(first.verdict(), Ok(()));
        prop_assert_eq!(bins.verdict(), Ok(()));
    }

    #[test]
    fn every_policy_does_what_its_naive_twin_does(steps in steps(), power in 0_u32..10) {
        let grain = 1 << power;
        prop_assert_eq!(run(&mut BestFit::new(grain), &steps), Naive::run(grain, Rule::BestFit, &steps));
        prop_assert_eq!(run(&mut FirstFit::new(grain), &steps), Naive::run(grain, Rule::FirstFit, &steps));
        prop_assert_eq!(run(&mut Bfc::new(grain), &steps), Naive::run(grain, Rule::Bfc, &steps));
    }
}
