//! Takes accounts, once or periodically.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use makeroom_ordered::{OrderedMap, OrderedSet};

use crate::account::{Account, Device, Driver, join};
use crate::processes::Processes;
use crate::recording::{self, Budget, Recordings};
use crate::survey::{Survey, SurveyError, Surveyor};

/// How to take accounts.
#[derive(Clone, Debug)]
pub struct WatcherOptions {
    /// The process file system: `/proc`, or the mount of the host's.
    pub processes: PathBuf,
    /// Timeout for the driver.
    pub deadline: Duration,
    /// Maximum age of the list of processes that the driver does not list. Listed ones are read every time.
    pub others_may_be: Duration,
    /// Whether to read the recordings of running programs.
    pub reads_recordings: bool,
}

impl WatcherOptions {
    /// For a single account: reads everything.
    pub fn once(processes: PathBuf, deadline: Duration) -> Self {
        Self { processes, deadline, others_may_be: Duration::ZERO, reads_recordings: true }
    }

    /// For an account every second or so: reads rarely changing data less often, and no recordings.
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
        // A pod has a host name of its own; Kubernetes manifests pass the node's in this variable.
        let host = std::env::var("NODE_NAME").unwrap_or_else(|_| own());
        Self {
            surveyor: Surveyor::new(command, options.deadline),
            options,
            host: host.trim_end().to_owned(),
            last: None,
        }
    }

    /// Queries only the driver.
    pub fn survey(&mut self) -> Result<Survey, SurveyError> {
        self.surveyor.take()
    }

    /// Takes an account. If the driver cannot be queried, it contains what `/proc` shows.
    pub fn look(&mut self) -> Account {
        let mut survey = self.surveyor.take();
        let (mut read_at, mut processes) = self.processes(&survey);
        if survey.as_ref().is_ok_and(|survey| misses(survey, &processes)) {
            // A listed process has ended in the meantime: query the driver again.
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

    /// The recordings of listed processes. Those of others are not shown.
    fn recordings(
        &self,
        survey: &Result<Survey, SurveyError>,
        processes: &Processes,
    ) -> OrderedMap<u32, Recordings> {
        let listed: OrderedSet<u32> =
            survey.iter().flat_map(Survey::listed).map(|listed| listed.pid).collect();
        let listed = listed.into_iter().filter(|_| self.options.reads_recordings);
        let files = listed.filter_map(|pid| Some((pid, processes.known.get(&pid)?.files.recording.clone()?)));
        recording::read_all(files, Budget::USUAL)
    }

    /// The PIDs of this process and its child, to be skipped. They are valid only if `/proc` is that of this
    /// namespace.
    fn own(&self) -> Vec<u32> {
        let own = std::process::id();
        let here = fs::read_link(self.options.processes.join("self"));
        let is_ours = here.is_ok_and(|number| number.as_os_str() == own.to_string().as_str());
        let all = self.surveyor.process().into_iter().chain([own]);
        all.filter(|_| is_ours).collect()
    }

    /// The processes, and when all of them were last read.
    fn processes(&mut self, survey: &Result<Survey, SurveyError>) -> (Instant, Processes) {
        let listed: OrderedSet<u32> =
            survey.iter().flat_map(Survey::listed).map(|listed| listed.pid).collect();
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

/// Whether a listed process should be visible and is not.
fn misses(survey: &Survey, processes: &Processes) -> bool {
    let sees_all = processes.view.is_whole_machine != Some(false) && !processes.view.hides_others;
    sees_all && survey.listed().any(|listed| !processes.stats.contains_key(&listed.pid))
}

/// Whether there is unlisted memory that no process with open files explains.
fn is_unexplained(device: &Device) -> bool {
    device.unlisted.matters() && device.unlisted.causes.iter().all(|cause| cause.pids.is_empty())
}
