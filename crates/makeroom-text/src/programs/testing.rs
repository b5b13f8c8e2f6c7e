//! What the tests of the program files share.

use makeroom_explain::{Cause, Fix};

use super::{Program, advise};
use crate::context::Context;
use crate::log::Log;
use crate::situation::Situation;
use crate::{find, fixes};

/// A log's program and the steps for a cause, as they are given.
pub(super) fn advice(text: &str, cause: Cause) -> (&'static Program, Vec<Fix>) {
    let log = Log::new(text);
    let (facts, index) =
        find::failures(&log).map_or_else(Default::default, |found| (found.first, found.index));
    let context = Context::read(&log, index);
    let situation = Situation::new(&log, 0, &facts, &context);
    (situation.program, fixes::for_cause(cause, &situation))
}

/// The commands that the program of a failure's log gives for a cause, before any is filtered out.
pub(super) fn commands(text: &str, cause: Cause) -> Vec<String> {
    let log = Log::new(text);
    let found = find::failures(&log).unwrap();
    let context = Context::read(&log, found.index);
    let situation = Situation::new(&log, found.index, &found.first, &context);
    advise(&situation, cause).into_iter().filter_map(|fix| fix.command).collect()
}

/// One step as text: the action, then the command.
fn line(fix: &Fix) -> String {
    format!("{} | {}", fix.action, fix.command.as_deref().unwrap_or(""))
}

/// Checks one program: it is found in the log, its first step for live data contains `first`, and no step contains
/// `taken` once the log shows the setting `shown`.
pub(super) fn check(name: &str, log: &str, first: &str, (shown, taken): (&str, &str)) {
    let (program, steps) = advice(log, Cause::LiveDataFillsDevice);
    assert_eq!(program.name, name, "{log}");
    let lines: Vec<String> = steps.iter().map(line).collect();
    assert!(lines.first().is_some_and(|line| line.contains(first)), "{name}: {lines:#?}");
    assert!((2..=8).contains(&lines.len()), "{name}: {lines:#?}");
    assert!(lines.iter().any(|line| line.contains(taken)), "{name} never says {taken}: {lines:#?}");
    let (program, steps) = advice(&format!("{shown}\n{log}"), Cause::LiveDataFillsDevice);
    assert_eq!(program.name, name, "{shown}\n{log}");
    let lines: Vec<String> = steps.iter().map(line).collect();
    assert!(!lines.is_empty(), "{name}: nothing left once {shown} is set");
    assert!(lines.iter().all(|line| !line.contains(taken)), "{name}: {taken} is set: {lines:#?}");
}

/// PyTorch's message, with a card that is full of live data.
pub(super) const TORCH: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 12.00 GiB of which 500.00 MiB is free. Including non-PyTorch memory, this process has 11.40 GiB memory in use. Of the allocated memory 11.00 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.";

/// PyTorch's message below a line of a traceback or a command.
pub(super) fn torch(line: &str) -> String {
    format!("{line}\n{TORCH}")
}
