//! Takes the account, once or again and again.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::account::{Account, Device, Driver, join};
use crate::processes::Processes;
use crate::survey::{Survey, Surveyor};

/// How to look.
#[derive(Clone, Debug)]
pub struct WatcherOptions {
    /// Where processes are: `/proc`, or where the host's is mounted.
    pub processes: PathBuf,
    /// How long the driver may take to answer.
    pub deadline: Duration,
}

impl Default for WatcherOptions {
    fn default() -> Self {
        Self { processes: PathBuf::from("/proc"), deadline: Duration::from_secs(5) }
    }
}

/// Takes accounts.
#[derive(Debug)]
pub struct Watcher {
    surveyor: Surveyor,
    processes: PathBuf,
    host: String,
}

impl Watcher {
    /// A watcher whose surveyor is `command`, which must call [`answer`](crate::answer).
    pub fn new(command: Command, options: WatcherOptions) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            surveyor: Surveyor::new(command, options.deadline),
            processes: options.processes,
            host: host.trim_end().to_owned(),
        }
    }

    /// Takes the account. A driver that cannot be asked leaves what `/proc` shows.
    pub fn look(&mut self) -> Account {
        let survey = self.surveyor.take();
        let own: Vec<u32> = self.surveyor.process().into_iter().chain([std::process::id()]).collect();
        let listed: HashSet<u32> = survey.iter().flat_map(listed).collect();
        let mut processes = Processes::read(&self.processes, &listed, &own);
        let mut devices = survey.as_ref().map_or(Vec::new(), |survey| join(survey, &processes));
        if let Ok(survey) = &survey
            && devices.iter().any(is_unexplained)
        {
            processes.add_mapped(&self.processes, &own);
            devices = join(survey, &processes);
        }
        let users = processes.known.into_values().filter(|process| process.files.has_driver()).collect();
        Account {
            taken: SystemTime::now(),
            host: self.host.clone(),
            driver: survey.map(|survey| Driver { version: survey.driver, cuda: survey.cuda }),
            devices,
            users,
            view: processes.view,
        }
    }
}

fn listed(survey: &Survey) -> impl Iterator<Item = u32> {
    let cards = survey.cards.iter().flat_map(|card| std::iter::once(card).chain(&card.parts));
    cards.flat_map(|card| &card.listed).map(|listed| listed.pid)
}

/// Whether memory is missing that no open file explains.
fn is_unexplained(device: &Device) -> bool {
    device.unlisted.matters() && device.unlisted.causes.iter().all(|cause| cause.pids.is_empty())
}
