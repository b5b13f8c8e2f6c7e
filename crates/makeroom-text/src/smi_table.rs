//! Pasted tables of `nvidia-smi` and `gpustat`: how full each device is, and who is listed on it.
//!
//! ```text
//! |   0  NAME  …  Off  | 00000000:02:00.0 Off |                  N/A |   the device's number …
//! | 23%  37C  P8  …    |    1656MiB / 12000MiB |      0%      Default |   … and how full it is
//! |  0    1   0   0  |   4608MiB / 20480MiB | …                        a MIG instance, all in one line
//! |    0   N/A  N/A      4321      C   python               1600MiB |   a process; before 2020 without N/A
//! [0] NAME | 65'C,  88 % | 9000 / 12000 MB | ann:python/4321(8900M)   gpustat
//! PID       GPU Memory                                                  a list shortened by hand
//! ```
//!
//! A paste often holds only half of a table, so each half is optional.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex};
use makeroom_search::{Captures, Regex, pattern};
use memchr::memchr2;

use crate::facts::ListedProcess;
use crate::figures::captured_number;

/// How full one device was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceUse {
    /// Its number, where the paste still has it.
    pub(crate) device: Option<DeviceIndex>,
    pub(crate) used: Bytes,
    pub(crate) total: Bytes,
}

/// Where a table was made, where the words above it say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableOrigin {
    Container,
    Host,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// How full the devices were.
    pub(crate) devices: Vec<DeviceUse>,
    /// Who was listed with a size, and on which device.
    pub(crate) processes: Vec<(Option<DeviceIndex>, ListedProcess)>,
    /// How many were listed without a size, as on Windows.
    pub(crate) unsized_processes: usize,
    /// The half that lists processes is there, empty or not.
    pub(crate) has_process_part: bool,
    /// Where it was made.
    pub(crate) place: Option<TableOrigin>,
    /// The devices are MIG instances; they have replaced the device they are parts of.
    is_mig: bool,
}

impl Table {
    /// The processes on one device; those whose device is not given may be on any.
    pub(crate) fn processes_on(&self, device: Option<DeviceIndex>) -> Vec<ListedProcess> {
        let is_there = |listed: Option<DeviceIndex>| device.is_none() || listed.is_none() || listed == device;
        self.processes.iter().filter(|(on, _)| is_there(*on)).map(|(_, process)| process.clone()).collect()
    }

    fn is_empty(&self) -> bool {
        self.devices.is_empty() && !self.has_process_part
    }
}

static FULL: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d+) ?Mi?B */ *(\d+) ?Mi?B\b"));
static DEVICE_ROW: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\s>]*\| *(\d{1,2}) +[^|\d ][^|]*\|"));
static MIG_ROW: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\s>]*\| *(\d{1,2}) +\d+ +\d+ +\d+ *\|"));
static PROCESS_ROW: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^[\s>]*\| *(\d{1,2}) +(?:(?:N/A|\d+) +(?:N/A|\d+) +)?(\d+) +(?:(?:C|G|M|C\+G|M\+C) +)?(\S.*?) +(?:(\d+) ?Mi?B|N/A) *\|?\s*$",
    )
});
static GPUSTAT_ROW: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(?:\[(\d{1,2})\] )?.*\| *(\d+) */ *(\d+) MB *(?:\||$)(.*)$"));
static GPUSTAT_PROCESS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:[\w.-]+)(?::([^/()\s]+))?(?:/(\d+))?\((\d+)M\)"));
static LIST_HEADER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)^[^|]*\bpid\b[^|]*\bmemory\b[^|]*$"));
static LIST_ROW: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(\d{2,9})(?:\s*,\s*|\s+)(?:(\S.*?)(?:\s*,\s*|\s+))?(\d+) ?Mi?B\s*$"));
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:containers?|docker|pods?)\b"));
static HOST: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bhost\b"));

/// The tables in a text, in order.
pub(crate) fn tables<'text>(lines: impl IntoIterator<Item = &'text str>) -> Vec<Table> {
    let mut reader = Reader::default();
    for line in lines {
        reader.line(line);
    }
    reader.finish_table();
    reader.tables
}

#[derive(Default)]
struct Reader {
    tables: Vec<Table>,
    open: Table,
    device: Option<DeviceIndex>,
    is_in_processes: bool,
    is_in_list: bool,
    place: Option<TableOrigin>,
}

/// The heading of the list of processes: in a frame, or alone on its line. "Number of Processes: 4" is none.
fn is_process_heading(line: &str) -> bool {
    line.contains("Processes:") && (line.contains('|') || line.trim() == "Processes:")
}

impl Reader {
    fn line(&mut self, line: &str) {
        if line.contains("NVIDIA-SMI") {
            self.finish_table();
        } else if is_process_heading(line) || LIST_HEADER.is_match(line) {
            self.begin_processes(!line.contains('|'));
        } else if line.contains("No running processes found") {
            self.open.has_process_part = true;
        } else if let Some(found) = GPUSTAT_ROW.captures(line) {
            self.gpustat_row(&found);
        } else if let Some(found) = FULL.captures(line) {
            self.full_row(line, &found);
        } else if self.is_in_processes && !self.process_row(line) {
            // Any other line ends an unframed list; a framed table has rules and headings between its rows.
            self.is_in_processes = !self.is_in_list;
        } else if let Some(found) = DEVICE_ROW.captures(line) {
            self.device = captured_number(&found, 1).map(DeviceIndex);
        }
        if memchr2(b'|', b'+', line.as_bytes()).is_none() {
            self.read_place(line);
        }
    }

    /// The last word before a table that says where it was made.
    fn read_place(&mut self, line: &str) {
        if CONTAINER.is_match(line) {
            self.place = Some(TableOrigin::Container);
        } else if HOST.is_match(line) {
            self.place = Some(TableOrigin::Host);
        }
    }

    fn begin_processes(&mut self, is_list: bool) {
        if self.open.has_process_part {
            self.finish_table();
        }
        self.open.has_process_part = true;
        self.open.place = self.open.place.or(self.place.take());
        self.is_in_processes = true;
        self.is_in_list = is_list;
    }

    /// How full a device is; the second line of a MIG instance is about its window into host memory.
    fn full_row(&mut self, line: &str, found: &Captures<'_>) {
        let mig = MIG_ROW.captures(line);
        let first_cell = line.split('|').nth(1).unwrap_or("");
        if mig.is_none() && line.contains('|') && (first_cell.trim().is_empty() || self.open.is_mig) {
            return;
        }
        if self.open.has_process_part {
            self.finish_table();
        }
        let (Some(used), Some(total)) = (captured_number(found, 1), captured_number(found, 2)) else {
            return;
        };
        self.open.place = self.open.place.or(self.place.take());
        if let Some(mig) = mig {
            self.device = captured_number(&mig, 1).map(DeviceIndex);
            if !std::mem::replace(&mut self.open.is_mig, true) {
                self.open.devices.clear();
            }
        }
        let device = self.device.take();
        self.open.devices.push(DeviceUse { device, used: Bytes::mib(used), total: Bytes::mib(total) });
    }

    fn gpustat_row(&mut self, found: &Captures<'_>) {
        let device = captured_number(found, 1).map(DeviceIndex);
        let (Some(used), Some(total)) = (captured_number(found, 2), captured_number(found, 3)) else {
            return;
        };
        if device.is_some() && self.open.devices.iter().any(|known| known.device == device) {
            self.finish_table();
        }
        self.open.has_process_part = true;
        self.open.devices.push(DeviceUse { device, used: Bytes::mib(used), total: Bytes::mib(total) });
        for process in GPUSTAT_PROCESS.captures_iter(&found[4]) {
            if let Some(held) = captured_number(&process, 3) {
                let pid = captured_number(&process, 2).unwrap_or(0);
                let name = process.get(1).map(|name| name.as_str().to_owned());
                self.open.processes.push((device, ListedProcess { pid, bytes: Bytes::mib(held), name }));
            }
        }
    }

    /// Whether the line lists a process.
    fn process_row(&mut self, line: &str) -> bool {
        let (row, device) = if self.is_in_list { (&LIST_ROW, None) } else { (&PROCESS_ROW, Some(1)) };
        let Some(found) = row.captures(line) else { return false };
        let pid_group = if device.is_some() { 2 } else { 1 };
        let Some(pid) = captured_number(&found, pid_group) else { return false };
        let device = device.and_then(|group| captured_number(&found, group)).map(DeviceIndex);
        let name = found.get(pid_group + 1).map(|name| name.as_str().to_owned());
        match captured_number(&found, pid_group + 2) {
            Some(held) => {
                self.open.processes.push((device, ListedProcess { pid, bytes: Bytes::mib(held), name }));
            }
            None => self.open.unsized_processes += 1,
        }
        true
    }

    fn finish_table(&mut self) {
        let table = std::mem::take(&mut self.open);
        if !table.is_empty() {
            self.tables.push(table);
        }
        self.device = None;
        self.is_in_processes = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Table> {
        tables(text.lines())
    }

    fn row(pid: u64, mebibytes: u64, name: &str) -> ListedProcess {
        ListedProcess { pid, bytes: Bytes::mib(mebibytes), name: Some(name.to_owned()) }
    }

    #[test]
    fn old_and_new_layouts_are_read() {
        let old = "| NVIDIA-SMI 375.66                 Driver Version: 375.66   |\n\
            |   0  Quadro K9      Off  | 00000000:02:00.0 Off |                  N/A |\n\
            | 23%   37C    P8    17W / 250W |   1656MiB / 12000MiB |      0%      Default |\n\
            | Processes:                                                       GPU Memory |\n\
            |  GPU       PID   Type   Process name                             Usage      |\n\
            |=============================================================================|\n\
            |    0      4321      C   python                                      1600MiB |\n\
            +-----------------------------------------------------------------------------+";
        let new = "> | NVIDIA-SMI 550.78    Driver Version: 550.78         CUDA Version: 12.4     |\n\
            > |   3  NVIDIA H9 80GB          On | 00000000:1E:00.0 Off |                    0 |\n\
            > | N/A   36C    P0    41W / 300W |  12600MiB / 16384MiB |      0%      Default |\n\
            > |                                         |                      |             Disabled |\n\
            > |  GPU   GI   CI        PID   Type   Process name                  GPU Memory |\n\
            > | Processes:                                                                  |\n\
            > |    3   N/A  N/A      7001      C   ...envs/a b/bin/python          12000MiB |\n\
            > |    3   N/A  N/A      7002      G   /usr/lib/xorg/Xorg                  N/A |";
        let table = &read(old)[0];
        assert_eq!(
            table.devices,
            [DeviceUse { device: Some(DeviceIndex(0)), used: Bytes::mib(1656), total: Bytes::mib(12000) }]
        );
        assert_eq!(table.processes, [(Some(DeviceIndex(0)), row(4321, 1600, "python"))]);
        let table = &read(new)[0];
        assert_eq!(table.devices[0].device, Some(DeviceIndex(3)));
        assert_eq!(table.processes_on(Some(DeviceIndex(3))), [row(7001, 12000, "...envs/a b/bin/python")]);
        assert_eq!((table.unsized_processes, table.processes_on(Some(DeviceIndex(0))).len()), (1, 0));
    }

    #[test]
    fn mig_instances_replace_their_device() {
        let text = "|   0  NVIDIA A9-SXM4-40GB    On   | 00000000:07:00.0 Off |   On |\n\
            | N/A   35C    P0    60W / 400W |   4700MiB / 40960MiB |     N/A      Default |\n\
            | MIG devices:                                                                |\n\
            |  0    1   0   0  |   4608MiB / 20480MiB | 42      0 |  3   0    2    0    0 |\n\
            |                  |      2MiB / 32767MiB |           |                       |";
        let devices = &read(text)[0].devices;
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].device, devices[0].total), (Some(DeviceIndex(0)), Bytes::mib(20480)));
    }

    #[test]
    fn gpustat_and_bare_lists_are_read() {
        let table = &read("[6] NVIDIA A9 | 52'C, 100 % | 9500 / 81920 MB | ann:python/77(9000M)")[0];
        assert_eq!(table.processes, [(Some(DeviceIndex(6)), row(77, 9000, "python"))]);
        let table = &read("PID       GPU Memory\n4401 2681MiB\n4402, python, 884 MiB\nend\n77 12MiB")[0];
        assert_eq!(table.processes.iter().map(|(_, process)| process.pid).collect::<Vec<_>>(), [4401, 4402]);
        assert!(table.has_process_part && table.devices.is_empty());
    }

    #[test]
    fn the_words_above_say_where_a_table_was_made() {
        let text = "inside the container:\n| Processes:   GPU Memory |\n|====|\n\
            on the host:\n| Processes:   GPU Memory |\n|    0     4501    C   python    903MiB |";
        let places: Vec<_> = read(text).iter().map(|table| table.place).collect();
        assert_eq!(places, [Some(TableOrigin::Container), Some(TableOrigin::Host)]);
    }

    #[test]
    fn other_texts_hold_no_table() {
        assert_eq!(read("llama: CUDA0 buffer size = 12 MiB\n| epoch | loss |\n| 1 | 0.3 |"), []);
    }
}
