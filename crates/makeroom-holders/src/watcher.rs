//! Takes the account, once or again and again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::account::{Account, Device, Driver, join};
use crate::processes::Processes;
use crate::recording::{self, Budget, Recordings};
use crate::survey::{Survey, SurveyError, Surveyor};

/// How to look.
#[derive(Clone, Debug)]
pub struct WatcherOptions {
    /// Where processes are: `/proc`, or where the host's is mounted.
    pub processes: PathBuf,
    /// How long the driver may take to answer.
    pub deadline: Duration,
    /// How old the picture of processes may be that the driver does not list. Those it lists are read each time.
    pub others_may_be: Duration,
    /// Whether recordings of running programs are read.
    pub reads_recordings: bool,
}

impl WatcherOptions {
    /// To look once: everything is read.
    pub fn once(processes: PathBuf, deadline: Duration) -> Self {
        Self { processes, deadline, others_may_be: Duration::ZERO, reads_recordings: true }
    }

    /// To look every second or so: what changes seldom is read seldom.
    pub fn often(processes: PathBuf, deadline: Duration) -> Self {
        const OTHERS_MAY_BE: Duration = Duration::from_secs(30);
        Self { processes, deadline, others_may_be: OTHERS_MAY_BE, reads_recordings: false }
    }
}

/// Takes accounts.
#[derive(Debug)]
pub struct Watcher {
    surveyor: Surveyor,
    options: WatcherOptions,
    host: String,
    last: Option<(Instant, Processes)>,
}

impl Watcher {
    /// A watcher whose surveyor is `command`, which must call [`answer`](crate::answer).
    pub fn new(command: Command, options: WatcherOptions) -> Self {
        let own = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // A pod has a name of its own; what runs it tells the machine's by this variable.
        let host = std::env::var("NODE_NAME").unwrap_or_else(|_| own());
        Self {
            surveyor: Surveyor::new(command, options.deadline),
            options,
            host: host.trim_end().to_owned(),
            last: None,
        }
    }

    /// What the driver says, and nothing else.
    pub fn survey(&mut self) -> Result<Survey, SurveyError> {
        self.surveyor.take()
    }

    /// Takes the account. A driver that cannot be asked leaves what `/proc` shows.
    pub fn look(&mut self) -> Account {
        let mut survey = self.surveyor.take();
        let (mut read_at, mut processes) = self.processes(&survey);
        if survey.as_ref().is_ok_and(|survey| misses(survey, &processes)) {
            // Who ended since the driver was asked is listed no more.
            survey = self.surveyor.take();
            self.last = Some((read_at, processes));
            (read_at, processes) = self.processes(&survey);
        }
        let recordings = self.recordings(&survey, &processes);
        let join = |survey: &Survey, processes: &Processes| join(survey, processes, &recordings);
        let mut devices = survey.as_ref().map_or(Vec::new(), |survey| join(survey, &processes));
        if let Ok(survey) = &survey
            && devices.iter().any(is_unexplained)
            && !processes.has_mapped
        {
            processes.add_mapped(&self.options.processes, &self.own());
            devices = join(survey, &processes);
        }
        let users = processes.known.values().filter(|process| process.files.has_driver()).cloned().collect();
        let view = processes.view.clone();
        self.last = Some((read_at, processes));
        Account {
            taken: SystemTime::now(),
            host: self.host.clone(),
            driver: survey.map(|survey| Driver { version: survey.driver, cuda: survey.cuda }),
            devices,
            users,
            view,
        }
    }

    /// The recordings of the processes that the driver lists. Others are not shown with theirs.
    fn recordings(
        &self,
        survey: &Result<Survey, SurveyError>,
        processes: &Processes,
    ) -> HashMap<u32, Recordings> {
        let listed: BTreeSet<u32> = survey.iter().flat_map(Survey::listed).map(|listed| listed.pid).collect();
        let listed = listed.into_iter().filter(|_| self.options.reads_recordings);
        let files = listed.filter_map(|pid| Some((pid, processes.known.get(&pid)?.files.recording.clone()?)));
        recording::read_all(files, Budget::USUAL)
    }

    /// The processes that look: this one, and the one that asks the driver. Their numbers are known only where `/proc`
    /// is that of this namespace.
    fn own(&self) -> Vec<u32> {
        let own = std::process::id();
        let here = fs::read_link(self.options.processes.join("self"));
        let is_ours = here.is_ok_and(|number| number.as_os_str() == own.to_string().as_str());
        let all = self.surveyor.process().into_iter().chain([own]);
        all.filter(|_| is_ours).collect()
    }

    /// The processes and when all of them were read.
    fn processes(&mut self, survey: &Result<Survey, SurveyError>) -> (Instant, Processes) {
        let listed: HashSet<u32> = survey.iter().flat_map(Survey::listed).map(|listed| listed.pid).collect();
        let own = self.own();
        let root = &self.options.processes;
        match self.last.take() {
            Some((read_at, mut processes)) if read_at.elapsed() < self.options.others_may_be => {
                processes.refresh(root, &listed);
                (read_at, processes)
            }
            _ => (Instant::now(), Processes::read(root, &listed, &own)),
        }
    }
}

/// Whether a process is listed that should be seen from here and is not.
fn misses(survey: &Survey, processes: &Processes) -> bool {
    let sees_all = processes.view.is_whole_machine != Some(false) && !processes.view.hides_others;
    sees_all && survey.listed().any(|listed| !processes.stats.contains_key(&listed.pid))
}

/// Whether memory is missing that no open file explains.
fn is_unexplained(device: &Device) -> bool {
    device.unlisted.matters() && device.unlisted.causes.iter().all(|cause| cause.pids.is_empty())
}
