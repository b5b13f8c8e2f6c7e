//! Tests the planner as a whole: tiny problems against brute force, all problems against the validator.

use proptest::prelude::*;

use std::time::Instant;

use super::*;

/// The minimum peak, by trying all orders: each buffer goes to the lowest place where it fits. Any plan in which no
/// buffer can move down results from the order of its offsets.
fn least_peak(buffers: &[Buffer]) -> u64 {
    fn extend(buffers: &[Buffer], placed: &mut Vec<(usize, u64)>, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        if placed.len() == buffers.len() {
            *best = peak;
            return;
        }
        for index in 0..buffers.len() {
            if placed.iter().any(|&(other, _)| other == index) {
                continue;
            }
            let buffer = buffers[index];
            let mut offset = 0;
            if !buffer.is_empty() {
                let fits = |offset: u64| {
                    placed.iter().all(|&(other, place)| {
                        let other = buffers[other];
                        other.is_empty()
                            || other.upper <= buffer.lower
                            || buffer.upper <= other.lower
                            || place + other.size <= offset
                            || offset + buffer.size <= place
                    })
                };
                while !fits(offset) {
                    offset += buffer.alignment;
                }
            }
            placed.push((index, offset));
            let end = if buffer.is_empty() { 0 } else { offset + buffer.size };
            extend(buffers, placed, peak.max(end), best);
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    extend(buffers, &mut Vec::new(), 0, &mut best);
    best
}

fn solve(buffers: &[Buffer], capacity: Option<u64>) -> Outcome {
    let problem = Problem { buffers: buffers.to_vec(), capacity };
    let outcome = plan(&problem, &Budget::quick()).unwrap();
    match &outcome {
        Outcome::Planned { plan, .. } => validate(&problem, plan).unwrap(),
        Outcome::GaveUp { best, .. } => {
            validate(&Problem { capacity: None, ..problem }, best).unwrap();
        }
        Outcome::Impossible(_) => {}
    }
    outcome
}

fn tiny_buffer() -> impl Strategy<Value = Buffer> {
    (0..6_u64, 0..5_u64, 0..6_u64, 0..3_u32)
        .prop_map(|(lower, length, size, shift)| Buffer::new(lower, lower + length, size).aligned(1 << shift))
}

fn buffer() -> impl Strategy<Value = Buffer> {
    (0..200_u64, 0..60_u64, 0..5000_u64, 0..8_u32)
        .prop_map(|(lower, length, size, shift)| Buffer::new(lower, lower + length, size).aligned(1 << shift))
}

/// A rectangle cut into pieces, which therefore fit it exactly.
fn cut(seed: u64, pieces: usize, times: u64, peak: u64) -> Vec<Buffer> {
    let mut random = random::Random::new(seed);
    let mut cuts = vec![(0, times, 0, peak)];
    while cuts.len() < pieces {
        let index = (random.next() % cuts.len() as u64) as usize;
        let (lower, upper, bottom, top) = cuts[index];
        if random.next().is_multiple_of(2) && upper - lower > 1 {
            let at = lower + 1 + random.next() % (upper - lower - 1);
            cuts[index].1 = at;
            cuts.push((at, upper, bottom, top));
        } else if top - bottom > 1 {
            let at = bottom + 1 + random.next() % (top - bottom - 1);
            cuts[index].3 = at;
            cuts.push((lower, upper, at, top));
        }
    }
    cuts.iter().map(|&(lower, upper, bottom, top)| Buffer::new(lower, upper, (top - bottom) * 1024)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tiny_problems_are_solved_exactly(buffers in prop::collection::vec(tiny_buffer(), 0..7)) {
        let least = least_peak(&buffers);
        let Outcome::Planned { plan, lower_bound } = solve(&buffers, None) else { panic!("no plan") };
        prop_assert_eq!(plan.peak, least);
        prop_assert_eq!(lower_bound, least, "the proof");
        let fits = matches!(solve(&buffers, Some(least)), Outcome::Planned { .. });
        prop_assert!(fits);
        if least > 0 {
            let Outcome::Impossible(conflict) = solve(&buffers, Some(least - 1)) else { panic!("no proof") };
            let members: Vec<Buffer> = conflict.buffers.iter().map(|&index| buffers[index]).collect();
            prop_assert!(least_peak(&members) > least - 1, "{conflict:?}");
            for index in 0..members.len() {
                let mut fewer = members.clone();
                fewer.remove(index);
                let needed = max_load(&fewer).map_or(0, |load| load.bytes) as u64;
                prop_assert!(needed < least, "{conflict:?} does not need {index}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn plans_are_valid_and_repeatable(buffers in prop::collection::vec(buffer(), 0..80), seed: u64) {
        let problem = Problem { buffers, capacity: None };
        let budget = Budget { steps: 3_000_000, seed, deadline: None };
        let Outcome::Planned { plan: first, lower_bound } = plan(&problem, &budget).unwrap() else {
            panic!("no plan")
        };
        prop_assert_eq!(validate(&problem, &first), Ok(()));
        prop_assert!(lower_bound <= first.peak);
        let again = plan(&problem, &budget).unwrap();
        prop_assert_eq!(again, Outcome::Planned { plan: first, lower_bound });
    }

    #[test]
    fn cut_rectangles_fit_again(seed: u64, pieces in 5..60_usize, times in 30..1000_u64) {
        let buffers = cut(seed, pieces, times, 512);
        match solve(&buffers, Some(512 * 1024)) {
            Outcome::Planned { plan, .. } => prop_assert_eq!(plan.peak, 512 * 1024),
            Outcome::GaveUp { .. } => {}
            Outcome::Impossible(conflict) => prop_assert!(false, "wrong proof: {conflict:?}"),
        }
    }
}

#[test]
fn nothing_to_place_needs_nothing() {
    let empty = [Buffer::new(0, 9, 0), Buffer::new(5, 5, 8), Buffer::new(7, 3, 8)];
    for buffers in [&[][..], &empty[..]] {
        let Outcome::Planned { plan, lower_bound } = solve(buffers, Some(0)) else { panic!("no plan") };
        assert_eq!((plan.peak, lower_bound), (0, 0));
        assert_eq!(plan.offsets, vec![0; buffers.len()]);
    }
}

#[test]
fn too_much_alive_at_once_names_the_fewest_buffers() {
    let buffers = [
        Buffer::new(0, 9, 3),
        Buffer::new(2, 4, 10),
        Buffer::new(3, 9, 7),
        Buffer::new(3, 4, 1),
        Buffer::new(5, 9, 6),
    ];
    let Outcome::Impossible(conflict) = solve(&buffers, Some(16)) else { panic!("it cannot fit") };
    assert_eq!(conflict.buffers, [1, 2]);
    assert_eq!(conflict.reason, Reason::Load { time: 3, bytes: 17 });
    assert_eq!(
        conflict.to_string(),
        "2 buffers live at time 3 together need 17 bytes, more than the capacity of 16"
    );
}

#[test]
fn alignment_alone_can_make_it_impossible() {
    let buffers = [Buffer::new(0, 9, 3).aligned(4), Buffer::new(0, 9, 3).aligned(4), Buffer::new(20, 30, 5)];
    let Outcome::Impossible(conflict) = solve(&buffers, Some(6)) else { panic!("it cannot fit") };
    assert_eq!(conflict.buffers, [0, 1]);
    assert_eq!(conflict.reason, Reason::Arrangement);
    let Outcome::Planned { plan, lower_bound } = solve(&buffers, None) else { panic!("no plan") };
    assert_eq!((plan.peak, lower_bound), (7, 7));
}

#[test]
fn giving_up_is_not_a_proof() {
    // Feasible by construction, but not with so few steps.
    let buffers = cut(7, 200, 40, 1024);
    let problem = Problem { buffers, capacity: Some(1 << 20) };
    let outcome = plan(&problem, &Budget { steps: 1000, ..Budget::default() }).unwrap();
    let Outcome::GaveUp { best, lower_bound, stop } = outcome else { panic!("{outcome:?}") };
    assert!(best.peak > 1 << 20);
    assert_eq!((lower_bound, stop), (1 << 20, Stop::Steps));
}

#[test]
fn the_deadline_and_the_callback_stop_the_work() {
    let problem = Problem { buffers: cut(7, 200, 40, 1024), capacity: Some(1 << 20) };
    let budget = Budget { deadline: Some(Instant::now()), ..Budget::default() };
    let outcome = plan(&problem, &budget).unwrap();
    assert!(matches!(outcome, Outcome::GaveUp { stop: Stop::Deadline, .. }), "{outcome:?}");
    let mut calls = 0;
    let outcome = plan_with(&problem, &Budget::default(), &mut |progress| {
        calls += 1;
        assert!(progress.steps <= progress.budget);
        ControlFlow::Break(())
    });
    assert!(matches!(outcome, Ok(Outcome::GaveUp { stop: Stop::Cancelled, .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}

#[test]
fn one_buffer_may_have_all_of_64_bits() {
    let buffers = [Buffer::new(0, 1, u64::MAX)];
    let Outcome::Planned { plan, .. } = solve(&buffers, None) else { panic!("no plan") };
    assert_eq!(plan.peak, u64::MAX);
    let two = [Buffer::new(0, 2, u64::MAX), Buffer::new(1, 2, 1)];
    let Outcome::Impossible(conflict) = solve(&two, None) else { panic!("beyond 64 bits") };
    assert_eq!(conflict.buffers, [0, 1]);
}

#[test]
fn what_cannot_be_planned_is_said() {
    let problem = Problem { buffers: vec![Buffer::new(0, 1, 8).aligned(3)], capacity: None };
    assert_eq!(plan(&problem, &Budget::quick()), Err(ProblemError::Alignment { buffer: 0, alignment: 3 }));
    let far = vec![Buffer::new(0, 1, u64::MAX), Buffer::new(1, 2, u64::MAX - 1)];
    assert_eq!(
        plan(&Problem { buffers: far, capacity: None }, &Budget::quick()),
        Err(ProblemError::TooLarge)
    );
}
