//! What NVML shows in addition to the shared ledger: `MAKEROOM_SIMNVML=hold=0:4711:2GiB,list=4711:none,lost=1`.
//!
//! Processes that allocate memory do so through the simulated driver and are in the ledger. A scenario describes what
//! tests cannot produce that way: processes of another namespace, lists other than the compute processes, unowned
//! memory, MIG instances, a lost GPU, a call that fails or hangs. An unknown key is an error.
//!
//! | key | |
//! |---|---|
//! | `hold=DEVICE:PID:SIZE` | a process, alive or not, that holds memory; `DEVICE/PART` on a MIG instance |
//! | `list=PID:WHERE` | the list a process is in: `compute`, `graphics`, `mps` or `none` |
//! | `blind=PID` | its memory is not available |
//! | `brief=PID` | it is listed until the GPUs have been counted twice, as if it ended in the meantime |
//! | `orphan=DEVICE:SIZE` | used memory without an owner |
//! | `mig=DEVICE:PARTS` | the GPU is divided into equal MIG instances |
//! | `closed=DEVICE` | the GPU reports no memory to this user, but its MIG instances do |
//! | `minor=DEVICE:NUMBER` | the minor number of `/dev/nvidiaN`; default: the index |
//! | `lost=DEVICE` | the GPU fell off the bus |
//! | `display=DEVICE` | the GPU drives a display |
//! | `mode=NUMBER` | compute mode: 0 shared, 2 prohibited, 3 exclusive |
//! | `persistence=on` | the driver stays loaded |
//! | `accounting=PID:SIZE` | accounting is on and has this peak |
//! | `driver=VERSION`, `cuda=NUMBER` | versions: `535.54.03`, `12020` |
//! | `fail=FUNCTION:ERROR` | every call of a function fails |
//! | `hang=FUNCTION` | every call of a function hangs |

use std::env;

use makeroom_simcard::{DEVICES, parse_size};

/// What NVML shows in addition to the shared ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) holds: Vec<Hold>,
    pub(crate) lists: Vec<(u32, List)>,
    pub(crate) blind: Vec<u32>,
    pub(crate) brief: Vec<u32>,
    pub(crate) orphans: Vec<(usize, u64)>,
    pub(crate) parts: Vec<(usize, usize)>,
    pub(crate) closed: Vec<usize>,
    pub(crate) minors: Vec<(usize, u32)>,
    pub(crate) lost: Vec<usize>,
    pub(crate) displays: Vec<usize>,
    pub(crate) mode: u32,
    pub(crate) is_persistent: bool,
    pub(crate) accounting: Vec<(u32, u64)>,
    pub(crate) driver: Option<String>,
    pub(crate) cuda: Option<i32>,
    pub(crate) failures: Vec<(String, u32)>,
    pub(crate) hangs: Vec<String>,
}

/// A process that holds memory without being in the shared ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) device: usize,
    pub(crate) part: Option<usize>,
    pub(crate) process: u32,
    pub(crate) bytes: u64,
}

/// The list of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Compute,
    Graphics,
    Mps,
    None,
}

impl Scenario {
    /// The scenario in `MAKEROOM_SIMNVML`.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::parse(&env::var("MAKEROOM_SIMNVML").unwrap_or_default())
    }

    /// Parses `key=value,key=value`; `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut scenario = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=')?;
            scenario.set(key, value)?;
        }
        Some(scenario)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "hold" => self.holds.push(Hold::parse(value)?),
            "list" => {
                let (process, list) = value.split_once(':')?;
                let list = match list {
                    "compute" => List::Compute,
                    "graphics" => List::Graphics,
                    "mps" => List::Mps,
                    "none" => List::None,
                    _ => return None,
                };
                self.lists.push((process.parse().ok()?, list));
            }
            "blind" => self.blind.push(value.parse().ok()?),
            "brief" => self.brief.push(value.parse().ok()?),
            "closed" => self.closed.push(index(value)?),
            "orphan" => {
                let (device, size) = value.split_once(':')?;
                self.orphans.push((index(device)?, parse_size(size)?));
            }
            "mig" => {
                let (device, parts) = value.split_once(':')?;
                let parts = parts.parse().ok().filter(|parts| (1..=7).contains(parts))?;
                self.parts.push((index(device)?, parts));
            }
            "minor" => {
                let (device, number) = value.split_once(':')?;
                self.minors.push((index(device)?, number.parse().ok()?));
            }
            "lost" => self.lost.push(index(value)?),
            "display" => self.displays.push(index(value)?),
            "mode" => self.mode = value.parse().ok()?,
            "persistence" => self.is_persistent = value == "on",
            "accounting" => {
                let (process, size) = value.split_once(':')?;
                self.accounting.push((process.parse().ok()?, parse_size(size)?));
            }
            "driver" => self.driver = Some(value.to_owned()),
            "cuda" => self.cuda = Some(value.parse().ok()?),
            "fail" => {
                let (function, error) = value.split_once(':')?;
                self.failures.push((function.to_owned(), error.parse().ok()?));
            }
            "hang" => self.hangs.push(value.to_owned()),
            _ => return None,
        }
        Some(())
    }

    /// Number of MIG instances of a GPU; 0 if MIG is off.
    pub(crate) fn parts_of(&self, device: usize) -> usize {
        self.parts.iter().find(|(divided, _)| *divided == device).map_or(0, |(_, parts)| *parts)
    }

    /// The list that a process is in.
    pub(crate) fn list_of(&self, process: u32) -> List {
        self.lists.iter().find(|(listed, _)| *listed == process).map_or(List::Compute, |(_, list)| *list)
    }

    /// Memory in use that is not in the shared ledger, on a GPU or on a MIG instance.
    pub(crate) fn used(&self, device: usize, part: Option<usize>) -> u64 {
        let holds = self.holds.iter().filter(|hold| hold.device == device);
        let held: u64 = holds.filter(|hold| part.is_none() || hold.part == part).map(|hold| hold.bytes).sum();
        let orphans = self.orphans.iter().filter(|(owner, _)| *owner == device && part.is_none());
        held + orphans.map(|(_, bytes)| bytes).sum::<u64>()
    }
}

impl Hold {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let place = words.next()?;
        let (device, part) = match place.split_once('/') {
            Some((device, part)) => (device, Some(index(part)?)),
            None => (place, None),
        };
        let hold = Self {
            device: index(device)?,
            part,
            process: words.next()?.parse().ok()?,
            bytes: parse_size(words.next()?)?,
        };
        words.next().is_none().then_some(hold)
    }
}

fn index(text: &str) -> Option<usize> {
    text.parse().ok().filter(|index| *index < DEVICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_tests_write_and_refuses_the_rest() {
        let text =
            "hold=0:41:2GiB, hold=1/2:42:1MiB,list=41:none,orphan=0:1GiB,mig=1:3,lost=2,hang=nvmlInit_v2";
        let scenario = Scenario::parse(text).unwrap();
        assert_eq!(scenario.used(0, None), 3 << 30);
        assert_eq!((scenario.used(1, Some(2)), scenario.used(1, Some(0))), (1 << 20, 0));
        assert_eq!((scenario.parts_of(1), scenario.parts_of(0)), (3, 0));
        assert_eq!((scenario.list_of(41), scenario.list_of(42)), (List::None, List::Compute));
        assert_eq!(scenario.hangs, ["nvmlInit_v2"]);
        for wrong in ["hold=0:1", "hold=99:1:1GiB", "list=1:somewhere", "mig=0:9", "hlod=0:1:1", "lost"] {
            assert_eq!(Scenario::parse(wrong), None, "{wrong}");
        }
    }
}
