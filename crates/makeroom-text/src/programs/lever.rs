//! Table entries for a program's own options: what to set, to which value, and how a text shows that it is set.

use makeroom_explain::{Cause, Fix};

use crate::holders;
use crate::situation::Situation;

/// How many of a program's levers are given where its own memory is not the cause.
const FEW: usize = 2;
/// Options that accumulate gradients over several batches, which keeps the effective batch.
const ACCUMULATION: [&str; 6] = [
    "--gradient_accumulation_steps",
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "--update-freq",
    "accum_grad",
    "iter_size",
];
/// Accumulation steps where the text does not show the batch size.
const USUAL_ACCUMULATION: u64 = 8;

/// One option of a program and the value to try. In `action` and `command`, `{to}` is that value, `{from}` or
/// `{from UNIT|ELSE}` is " from N UNIT" or " (now N UNIT)" if the text shows the present value, and ELSE if it does not, and `{steps}` is the number of
/// accumulation steps that keeps the effective batch.
pub(super) struct Lever {
    action: &'static str,
    command: &'static str,
    number: Option<Number>,
    unless_on: &'static [&'static str],
    unless_said: &'static [&'static str],
    only: fn(&Situation<'_>) -> bool,
    is_variable: bool,
}

/// A number that memory grows or shrinks with.
#[derive(Clone, Copy)]
struct Number {
    names: &'static [&'static str],
    /// The value to try where the text does not show the present one; 0: then there is no step.
    unknown: u64,
    /// There is no step beyond this value.
    bound: u64,
    multiple: u64,
    direction: Direction,
    is_batch: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Lower,
    /// Memory grows with the square, as with the side of an image.
    LowerSide,
    Raise,
}

impl Lever {
    /// A step without a number.
    pub(super) const fn new(action: &'static str, command: &'static str) -> Self {
        Self {
            action,
            command,
            number: None,
            unless_on: &[],
            unless_said: &[],
            only: |_| true,
            is_variable: false,
        }
    }

    /// A switch: no step where the text shows it to be on.
    pub(super) const fn switch(
        action: &'static str,
        command: &'static str,
        names: &'static [&'static str],
    ) -> Self {
        Self { unless_on: names, ..Self::new(action, command) }
    }

    /// A number to lower: computed from the value that the text shows, else `unknown`.
    pub(super) const fn lower(
        action: &'static str,
        command: &'static str,
        names: &'static [&'static str],
        unknown: u64,
    ) -> Self {
        let number =
            Number { names, unknown, bound: 1, multiple: 1, direction: Direction::Lower, is_batch: false };
        Self { number: Some(number), ..Self::new(action, command) }
    }

    /// A number to double, up to `most`.
    pub(super) const fn raise(
        action: &'static str,
        command: &'static str,
        names: &'static [&'static str],
        unknown: u64,
        most: u64,
    ) -> Self {
        let number =
            Number { names, unknown, bound: most, multiple: 1, direction: Direction::Raise, is_batch: false };
        Self { number: Some(number), ..Self::new(action, command) }
    }

    /// The batch size, also where the text names it under another option.
    pub(super) const fn batch(
        action: &'static str,
        command: &'static str,
        names: &'static [&'static str],
    ) -> Self {
        let number =
            Number { names, unknown: 1, bound: 1, multiple: 1, direction: Direction::Lower, is_batch: true };
        Self { number: Some(number), ..Self::new(action, command) }
    }

    /// The side of an image: at least `least`, a multiple of `multiple`.
    pub(super) const fn side(
        action: &'static str,
        command: &'static str,
        names: &'static [&'static str],
        unknown: u64,
        (least, multiple): (u64, u64),
    ) -> Self {
        let number = Number {
            names,
            unknown,
            bound: least,
            multiple,
            direction: Direction::LowerSide,
            is_batch: false,
        };
        Self { number: Some(number), ..Self::new(action, command) }
    }

    /// The least value of a number to lower, and what it must be a multiple of.
    pub(super) const fn at_least(mut self, least: u64, multiple: u64) -> Self {
        if let Some(number) = self.number {
            self.number = Some(Number { bound: least, multiple, ..number });
        }
        self
    }

    /// No step where the text contains one of these words.
    pub(super) const fn unless_said(mut self, words: &'static [&'static str]) -> Self {
        self.unless_said = words;
        self
    }

    /// No step where the text shows one of these switches to be on.
    pub(super) const fn unless_on(mut self, names: &'static [&'static str]) -> Self {
        self.unless_on = names;
        self
    }

    /// Only in some situations.
    pub(super) const fn only(mut self, only: fn(&Situation<'_>) -> bool) -> Self {
        self.only = only;
        self
    }

    /// The command is an environment variable's assignment: written as the shell of the system does.
    pub(super) const fn variable(mut self) -> Self {
        self.is_variable = true;
        self
    }

    /// The step, unless it is taken already or does not apply.
    pub(super) fn step(&self, situation: &Situation<'_>) -> Option<Fix> {
        let settings = situation.settings;
        let is_taken =
            settings.is_on(self.unless_on) || self.unless_said.iter().any(|words| settings.mentions(words));
        if is_taken || !(self.only)(situation) {
            return None;
        }
        let (from, to) = match self.number {
            Some(number) => number.values(situation, self.command.contains("{steps}"))?,
            None => (None, 0),
        };
        let steps = from.map_or(USUAL_ACCUMULATION, |from| {
            let present = settings.number(&ACCUMULATION).filter(|&steps| (1.0..1e6).contains(&steps));
            from.div_ceil(to.max(1)) * present.map_or(1, |steps| steps as u64)
        });
        let filled = |text: &str| {
            with_present(text, from).replace("{to}", &to.to_string()).replace("{steps}", &steps.to_string())
        };
        let fix = Fix::new(filled(self.action));
        let command = filled(self.command);
        Some(match command.as_str() {
            "" => fix,
            _ if self.is_variable => fix.command(situation.environment.export(&command)),
            _ => fix.command(command),
        })
    }
}

/// Verbs that take "from" before the present value: "lower the batch size from 8". "Use fewer bins" does not.
const FROM: [&str; 3] = ["lower ", "raise ", "shorten "];

/// A text with its `{from UNIT|ELSE}` filled in: " from N UNIT" or " (now N UNIT)" if the present value is known, else
/// the text after the bar, or nothing.
fn with_present(text: &str, from: Option<u64>) -> String {
    let Some((before, rest)) = text.split_once("{from") else { return text.to_owned() };
    let Some((inside, after)) = rest.split_once('}') else { return text.to_owned() };
    let (unit, unknown) = inside.split_once('|').unwrap_or((inside, ""));
    from.map_or_else(
        || format!("{before}{unknown}{after}"),
        |from| {
            if FROM.iter().any(|verb| before.starts_with(verb)) {
                format!("{before} from {from}{unit}{after}")
            } else {
                format!("{before} (now {from}{unit}){after}")
            }
        },
    )
}

impl Number {
    /// The present value, where the text shows it, and the value to try.
    fn values(self, situation: &Situation<'_>, accumulates: bool) -> Option<(Option<u64>, u64)> {
        let shown = situation.settings.number(self.names).filter(|value| (1.0..1e9).contains(value));
        let shown = shown.map(|value| value as u64).or_else(|| situation.batch().filter(|_| self.is_batch));
        let Some(from) = shown else {
            return (self.unknown > 0).then_some((None, self.unknown));
        };
        let to = match self.direction {
            Direction::Raise => (from * 2).min(self.bound),
            // Accumulated gradients keep the effective batch only over whole parts of it.
            Direction::Lower if self.is_batch && accumulates => situation.smaller_batch(from),
            Direction::Lower if self.is_batch => situation.smaller(from),
            // A step that is too small to matter is not worth a run.
            Direction::Lower => self.rounded(situation.smaller(from).min(from * 3 / 4)),
            Direction::LowerSide => {
                let factor = situation.shrink_factor().unwrap_or(0.5).sqrt();
                self.rounded((from as f64 * factor) as u64)
            }
        };
        let is_better = if self.direction == Direction::Raise { to > from } else { to < from };
        is_better.then_some((Some(from), to))
    }

    fn rounded(self, value: u64) -> u64 {
        (value / self.multiple * self.multiple).max(self.bound)
    }
}

/// The steps of a table for a cause: all where the program's own memory is the cause, the first few where it could
/// only make do with less, none where its options do not matter.
pub(super) fn steps(situation: &Situation<'_>, cause: Cause, levers: &[Lever]) -> Vec<Fix> {
    let all = levers.iter().filter_map(|lever| lever.step(situation));
    match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice => all.collect(),
        Cause::OtherProcesses | Cause::HiddenHolder if !holders::may_make_room_itself(&situation.account) => {
            Vec::new()
        }
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::Fragmentation | Cause::NonFrameworkOverhead => {
            all.take(FEW).collect()
        }
        _ => Vec::new(),
    }
}
