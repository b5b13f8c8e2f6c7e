//! Counts the steps of a run as cycles of rising and falling memory.
//!
//! Every step of training or inference allocates and frees memory: activations grow in the forward pass and shrink in
//! the backward pass. So steps can be counted from the curve of live bytes alone, without knowing the framework, even
//! if shapes vary from step to step. The curve has risen when it is more than halfway from its floor to its peak, and
//! fallen when it is below a quarter of the way.

use makeroom_sim::{Program, Step};

/// The cycles of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// The peak of each complete cycle, in order.
    pub peaks: Vec<u64>,
    /// The program step at which each ended.
    ends: Vec<usize>,
}

impl Cycles {
    /// Finds the cycles of a program.
    pub fn find(program: &Program) -> Self {
        let curve: Vec<u64> = program.live().collect();
        let Some(peak) = curve.iter().copied().max() else { return Self::default() };
        // Memory that is loaded before the first step is not freed in it, so the floor is that of the second half.
        // Frees at the end of the program do not count either.
        let last = program.steps.iter().rposition(|step| matches!(step, Step::Allocate(_))).unwrap_or(0);
        let floor = curve[last / 2..=last].iter().copied().min().unwrap_or(0);
        let height = peak - floor;
        // Nearly constant memory has no cycles.
        if height / 64 < 1 + peak / 4096 {
            return Self::default();
        }
        let (low, high) = (floor + height / 4, peak - height / 2);
        let mut cycles = Self::default();
        let mut highest = None;
        for (position, live) in curve.into_iter().enumerate() {
            match highest {
                None if live >= high => highest = Some(live),
                None => {}
                Some(so_far) if live <= low => {
                    cycles.peaks.push(so_far);
                    cycles.ends.push(position);
                    highest = None;
                }
                Some(so_far) => highest = Some(so_far.max(live)),
            }
        }
        cycles
    }

    /// Whether the last two cycles exceed all earlier ones by at most 1 %: everything that optimizers and caches keep
    /// after their first step is allocated.
    pub fn are_settled(&self) -> bool {
        let Some((last_two, earlier)) = self.peaks.split_last_chunk::<2>() else { return false };
        let before = earlier.iter().copied().max().unwrap_or(0);
        last_two.iter().all(|&peak| peak <= before + before / 100)
    }

    /// How many cycles ended after a step of the program.
    pub(crate) fn after(&self, position: usize) -> usize {
        self.ends.len() - self.ends.partition_point(|&end| end <= position)
    }

    /// Whether cycles differ from each other, because shapes vary.
    pub fn vary(&self) -> bool {
        let Some(settled) = self.peaks.get(2..).filter(|settled| settled.len() > 1) else { return false };
        let (least, most) = (settled.iter().min(), settled.iter().max());
        least.zip(most).is_some_and(|(&least, &most)| most - least > most / 200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    #[test]
    fn every_step_of_training_is_a_cycle() {
        let cycles = Cycles::find(&training(&Shape { steps: 5, ..Shape::default() }, 8).program);
        // The first step comes before the optimizer allocates, and may stay below the others.
        assert!((4..=5).contains(&cycles.peaks.len()), "{cycles:?}");
        assert!(cycles.are_settled());
        assert!(!cycles.vary());
    }

    #[test]
    fn a_program_that_gives_everything_back_in_the_end_has_the_steps_it_made() {
        let shape = Shape { steps: 6, width: 1 << 19, ..Shape::default() };
        let mut program = training(&shape, 1).program;
        let before = Cycles::find(&program).peaks.len();
        let mut is_live = vec![false; program.allocations.len()];
        for step in &program.steps {
            match *step {
                Step::Allocate(number) => is_live[number as usize] = true,
                Step::Free(number) => is_live[number as usize] = false,
                _ => {}
            }
        }
        for number in (0..is_live.len()).filter(|&number| is_live[number]) {
            program.steps.push(Step::Free(number as u32));
        }
        assert!(before >= 5);
        assert_eq!(Cycles::find(&program).peaks.len(), before);
    }

    #[test]
    fn a_run_that_only_loaded_its_model_has_none() {
        let cycles = Cycles::find(&training(&Shape { steps: 0, ..Shape::default() }, 8).program);
        assert_eq!(cycles, Cycles::default());
        assert!(!cycles.are_settled());
    }

    #[test]
    fn steps_are_counted_where_shapes_vary() {
        let shape = Shape { steps: 7, lengths: vec![40, 100, 80, 60], ..Shape::default() };
        let cycles = Cycles::find(&training(&shape, 8).program);
        // A step below half of the highest peak is not counted.
        assert!((3..=7).contains(&cycles.peaks.len()), "{cycles:?}");
        assert!(cycles.vary());
    }
}
