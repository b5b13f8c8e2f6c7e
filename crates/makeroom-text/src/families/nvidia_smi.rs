//! A pasted table of `nvidia-smi` or `gpustat`, which shows who holds the memory. Nothing failed in it; it
//! is an observation, and decides only when nothing else does. [`crate::smi_table`] has the layouts.
//!
//! | what it shows | conclusion |
//! |---|---|
//! | memory in use, no process listed | a hidden holder |
//! | an empty list in a container, a full one on the host | a hidden holder, and the host names it |
//! | one large process, several small equal ones of the same program | idle contexts of its workers |
//! | listed processes with most of what is used | other processes |

use makeroom_core::{Bytes, DeviceIndex, Framework, SortCompact as _};
use makeroom_explain::thresholds::CONTEXT_CEILING;
use makeroom_explain::{Cause, Certainty};

use crate::facts::{Facts, ListedProcess, Resource, Severity, Statement};
use crate::family::Family;
use crate::log::Passage;
use crate::smi_table::{DeviceUse, Table, TableOrigin, tables};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "NVIDIA-SMI",
        "Memory-Usage",
        "Processes:",
        "GPU Memory",
        "MiB / ",
        "MiB /  ",
        " MB |",
        "used_gpu_memory",
    ],
    read,
};

/// What the driver itself may show as used on an idle device.
const DRIVER_RESERVE: Bytes = Bytes::mib(300);
const DRIVER_RESERVE_SHARE: f64 = 0.03;
/// The sizes of a process that has a context and little else.
const CONTEXT_SIZES: std::ops::RangeInclusive<Bytes> = Bytes::mib(200)..=CONTEXT_CEILING;

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let tables = tables(passage.all());
    let first = tables.first()?;
    let mut best: Option<(Statement, &Table, Option<DeviceUse>)> = None;
    for (statement, table, device) in
        seen_from_outside(&tables).into_iter().chain(tables.iter().flat_map(conclusions))
    {
        if best.as_ref().is_none_or(|(known, _, _)| statement.certainty > known.certainty) {
            best = Some((statement, table, device));
        }
    }
    let (statement, table, device) =
        best.unwrap_or_else(|| (nothing_to_see(first), first, first.devices.first().copied()));
    let mut facts = Facts::new(Framework::NvidiaSmi, Resource::Device, passage);
    facts.severity = Severity::Observation;
    facts.device = device.and_then(|device| device.device);
    facts.total = device.map(|device| device.total);
    facts.free = device.map(|device| device.total - device.used);
    facts.processes = table.processes_on(facts.device);
    facts.statements.push(statement);
    Some(facts)
}

fn nothing_to_see(table: &Table) -> Statement {
    let used: Bytes = table.devices.iter().map(|device| device.used).sum();
    let summary = format!("This table shows no failure; {used} is in use.");
    Statement::new(Cause::None, Certainty::Possible, summary)
}

/// A process that the host lists and its container does not.
fn seen_from_outside(tables: &[Table]) -> Option<(Statement, &Table, Option<DeviceUse>)> {
    let inside = tables.iter().find(|table| table.has_process_part && table.processes.is_empty())?;
    let outside = tables.iter().find(|table| !table.processes.is_empty())?;
    if inside.place != Some(TableOrigin::Container) && outside.place != Some(TableOrigin::Host) {
        return None;
    }
    let held: Bytes = outside.processes.iter().map(|(_, process)| process.bytes).sum();
    let summary = format!(
        "The process list is empty inside the container and shows {} outside it, holding {held}: they run in another PID namespace, which is not visible from inside.",
        counted(outside.processes.len())
    );
    let statement =
        Statement { bytes: Some(held), ..Statement::new(Cause::HiddenHolder, Certainty::Certain, summary) };
    Some((statement, outside, outside.devices.first().copied()))
}

/// A conclusion from one device, or from a list without devices.
type Rule = fn(&Table, Option<DeviceUse>) -> Option<Statement>;

/// What one table shows, device by device; memory without a listed process comes first.
fn conclusions(table: &Table) -> Vec<(Statement, &Table, Option<DeviceUse>)> {
    let mut devices: Vec<Option<DeviceUse>> = table.devices.iter().copied().map(Some).collect();
    devices.sort_compact_by_key(|device| std::cmp::Reverse(device.map(|device| device.used)));
    if devices.is_empty() {
        devices.push(None);
    }
    let apply = |rule: Rule| {
        devices
            .iter()
            .filter_map(move |&device| Some((rule(table, device)?, table, device)))
            .collect::<Vec<_>>()
    };
    [hidden_holder as Rule, idle_workers, listed_holders].into_iter().flat_map(apply).collect()
}

fn hidden_holder(table: &Table, device: Option<DeviceUse>) -> Option<Statement> {
    let DeviceUse { device: index, used, total } = device?;
    let living: Vec<_> = table.processes_on(index).into_iter().filter(is_alive).collect();
    let listed = held_by(&living);
    let unlisted = used - listed;
    let is_clear = if listed.is_zero() {
        used >= DRIVER_RESERVE && used.share_of(total) >= DRIVER_RESERVE_SHARE
    } else {
        unlisted > listed && unlisted >= Bytes::gib(1) && unlisted.share_of(total) >= 0.1
    };
    if !is_clear || table.unsized_processes > 0 {
        return None;
    }
    let (certainty, who) = if table.has_process_part {
        (
            Certainty::Likely,
            "no listed process holds it: it belongs to a process in another namespace or of another user, or is left over from a process that died",
        )
    } else {
        (Certainty::Possible, "the part of the table that lists processes is missing")
    };
    let summary = format!("{unlisted} of {total} is in use{}, and {who}.", on(index));
    Some(Statement { bytes: Some(unlisted), ..Statement::new(Cause::HiddenHolder, certainty, summary) })
}

/// A process that is gone keeps its row, with an error in the place of its name.
fn is_alive(process: &ListedProcess) -> bool {
    !process
        .name
        .as_deref()
        .is_some_and(|name| ["Unknown Error", "Not Found", "(null)"].iter().any(|gone| name.contains(gone)))
}

/// Small processes of equal size next to a large one of the same program: its workers, each with a context.
fn idle_workers(table: &Table, device: Option<DeviceUse>) -> Option<Statement> {
    let index =
        device.map_or_else(|| table.processes.first().and_then(|(on, _)| *on), |device| device.device);
    let processes = table.processes_on(index);
    let largest = processes.iter().max_by_key(|process| process.bytes)?;
    let is_small = |process: &&ListedProcess| {
        process.name == largest.name
            && CONTEXT_SIZES.contains(&process.bytes)
            && process.bytes.scaled(3.0) <= largest.bytes
    };
    let small: Vec<&ListedProcess> = processes.iter().filter(is_small).collect();
    let (least, most) =
        (small.iter().map(|process| process.bytes).min()?, small.iter().map(|process| process.bytes).max()?);
    if small.len() < 2 || most > least.scaled(1.05) {
        return None;
    }
    let held: Bytes = small.iter().map(|process| process.bytes).sum();
    let summary = format!(
        "{} of the same program hold about {most} each{}, {held} in total: these look like the contexts of workers that compute elsewhere or not at all.",
        counted(small.len()),
        on(index)
    );
    Some(Statement {
        bytes: Some(held),
        ..Statement::new(Cause::NonFrameworkOverhead, Certainty::Likely, summary)
    })
}

fn listed_holders(table: &Table, device: Option<DeviceUse>) -> Option<Statement> {
    let index = device.and_then(|device| device.device);
    let processes = table.processes_on(index);
    let held = held_by(&processes);
    let share = device.map_or(1.0, |device| held.share_of(device.total));
    if processes.is_empty() || held.is_zero() || share < 0.05 {
        return None;
    }
    let certainty = if share >= 0.2 { Certainty::Likely } else { Certainty::Possible };
    let of = device.map_or(String::new(), |device| format!(" of {}", device.total));
    let verb = if processes.len() == 1 { "holds" } else { "hold" };
    let summary = format!("{} {verb} {held}{of}{}.", counted(processes.len()), on(index));
    Some(Statement { bytes: Some(held), ..Statement::new(Cause::OtherProcesses, certainty, summary) })
}

fn held_by(processes: &[ListedProcess]) -> Bytes {
    processes.iter().map(|process| process.bytes).sum()
}

fn counted(processes: usize) -> String {
    if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") }
}

fn on(device: Option<DeviceIndex>) -> String {
    device.map_or(String::new(), |device| format!(" on GPU {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    const EMPTY: &str = "\
| NVIDIA-SMI 410.48                 Driver Version: 410.48                    |
|   0  Tesla P9-SXM2...  Off  | 00000000:05:00.0 Off |                    0 |
| N/A   36C    P0    41W / 300W |  12600MiB / 16384MiB |      0%      Default |
";
    const NOBODY: &str = "\
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
";

    fn statement(text: &str) -> (Cause, Certainty, Option<Bytes>) {
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.severity), ("nvidia-smi", Severity::Observation));
        (facts.statements[0].cause, facts.statements[0].certainty, facts.statements[0].bytes)
    }

    #[test]
    fn memory_without_a_listed_process() {
        let held = Some(Bytes::mib(12600));
        let text = format!("{EMPTY}{NOBODY}|  No running processes found                 |");
        assert_eq!(statement(&text), (Cause::HiddenHolder, Certainty::Likely, held));
        assert_eq!(statement(EMPTY), (Cause::HiddenHolder, Certainty::Possible, held));
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.total, facts.free), (Some(Bytes::mib(16384)), Some(Bytes::mib(3784))));
        let gone = format!("{EMPTY}{NOBODY}|    0      1234      C   Unknown Error    12500MiB |");
        assert_eq!(statement(&gone), (Cause::HiddenHolder, Certainty::Likely, held));
        let desktop = format!("{EMPTY}{NOBODY}|    0      1234      G   /usr/lib/xorg/Xorg    40MiB |");
        assert_eq!(statement(&desktop), (Cause::HiddenHolder, Certainty::Likely, Some(Bytes::mib(12560))));
    }

    #[test]
    fn processes_that_hold_the_device() {
        let text = format!("{EMPTY}{NOBODY}|    0      1234      C   python    12500MiB |");
        assert_eq!(statement(&text), (Cause::OtherProcesses, Certainty::Likely, Some(Bytes::mib(12500))));
        assert_eq!(facts_in(&text).unwrap().processes[0].pid, 1234);
        let list = "PID       GPU Memory\n4411 2681MiB\n4412  884 MiB\n";
        assert_eq!(statement(list), (Cause::OtherProcesses, Certainty::Likely, Some(Bytes::mib(3565))));
    }

    #[test]
    fn contexts_of_idle_workers() {
        let rows = "\
|    0      1001      C   /usr/bin/python3                           9344MiB |
|    0      1002      C   /usr/bin/python3                            617MiB |
|    0      1003      C   /usr/bin/python3                            617MiB |
|    1      1002      C   /usr/bin/python3                           9344MiB |
";
        let expected = (Cause::NonFrameworkOverhead, Certainty::Likely, Some(Bytes::mib(1234)));
        assert_eq!(statement(&format!("{NOBODY}{rows}")), expected);
    }

    #[test]
    fn a_container_that_does_not_see_its_processes() {
        let text =
            format!("in docker\n{NOBODY}\non the host\n{NOBODY}|    0     4501    C   python    903MiB |");
        assert_eq!(statement(&text), (Cause::HiddenHolder, Certainty::Certain, Some(Bytes::mib(903))));
    }

    #[test]
    fn an_idle_device_shows_nothing() {
        let text = format!("{}{NOBODY}", EMPTY.replace("12600", "  255"));
        assert_eq!(statement(&text), (Cause::None, Certainty::Possible, None));
    }

    #[test]
    fn a_failure_next_to_a_table_is_not_taken() {
        let facts = facts_in(&format!("{EMPTY}{NOBODY}RuntimeError: CUDA error: out of memory")).unwrap();
        assert_eq!(facts.severity, Severity::Failure);
        assert!(facts_in("| epoch | loss |\n| 1 | 12MiB / s |").is_none());
    }
}
