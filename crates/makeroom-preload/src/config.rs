//! Settings from the environment, read once when the library is loaded.
//!
//! At that point the process has one thread. Later, `getenv` would race with the program's `setenv`.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use makeroom_core::identity::JobIdentity;

use crate::sanitizer;

/// Which stacks events carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StackMode {
    /// Native and Python.
    #[default]
    Full,
    /// Native only.
    Native,
    /// None.
    Off,
}

/// Which recordings stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All of them.
    #[default]
    All,
    /// Those of processes that failed, or that were killed.
    Failed,
    /// The newest ones of a folder.
    Last(usize),
}

/// Settings from the environment variables.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate variable")]
pub(crate) struct Config {
    /// Whether the library does nothing at all.
    pub(crate) is_off: bool,
    /// Path of the recording, with `%p` for the process id.
    pub(crate) file: Vec<u8>,
    /// Whether to create its folder.
    pub(crate) makes_folder: bool,
    /// The run that this process belongs to.
    pub(crate) run: [u8; 16],
    /// Which stacks events carry.
    pub(crate) stacks: StackMode,
    /// Device memory that this process can see and allocate, in bytes.
    pub(crate) limit: Option<u64>,
    /// Whether hooks measure their own time.
    pub(crate) is_measuring: bool,
    /// Whether makeroom's pool serves the program's memory.
    pub(crate) pool: bool,
    /// Whether PyTorch's expandable segments have memory only where its tensors are.
    pub(crate) pages: bool,
    /// Host memory that may replace device memory, in bytes.
    pub(crate) spill: Option<u64>,
    /// Whether `run` wants status messages to display.
    pub(crate) is_watched: bool,
    /// Whether the recording leaves out the program's arguments.
    pub(crate) leaves_arguments_out: bool,
    /// The socket to which `run` listens.
    pub(crate) socket: Option<Vec<u8>>,
    /// Which recordings stay after a process has ended.
    pub(crate) keep: Keep,
    /// Bytes that the recording may take; `None` for any number.
    pub(crate) ring: Option<u64>,
    /// The process's place in a job, as its launcher states it.
    pub(crate) job: JobIdentity,
    /// The program's own variables that are recorded, with their values.
    pub(crate) recorded: Vec<(&'static [u8], Vec<u8>)>,
}

/// Variables that a recording contains if they are set: those that change how a framework allocates.
const RECORDED: [&CStr; 2] = [c"PYTORCH_ALLOC_CONF", c"PYTORCH_CUDA_ALLOC_CONF"];
/// A longer value is not a setting.
const LONGEST_VALUE: usize = 4096;

impl Config {
    /// Whether hooks matter without a recording: a limit or the pool stays in force for the life of the process.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_off && (self.pool || self.limit.is_some())
    }
}

const DEFAULT_FILE: &[u8] = b"makeroom.%p.room";

static CONFIG: OnceLock<Config> = OnceLock::new();

/// The settings. Constructors of other preloaded libraries may run before ours; then they are read at that point.
pub(crate) fn config() -> &'static Config {
    CONFIG.get_or_init(|| {
        let config = Config::read(environment);
        Config { is_off: config.is_off || sanitizer::present().is_some(), ..config }
    })
}

impl Config {
    fn read(variable: impl Fn(&CStr) -> Option<Vec<u8>>) -> Self {
        let text = |name: &CStr| variable(name).filter(|value| !value.is_empty());
        let number = |name: &CStr| text(name).and_then(|value| String::from_utf8(value).ok()?.parse().ok());
        let job =
            JobIdentity::from_environment(|name| String::from_utf8(text(&CString::new(name).ok()?)?).ok());
        let rank_file = text(c"MAKEROOM_RANK_FILE").filter(|_| job.rank.is_some());
        Self {
            is_off: text(c"MAKEROOM").is_some_and(|value| value == b"off"),
            makes_folder: rank_file.is_some(),
            file: rank_file.or_else(|| text(c"MAKEROOM_FILE")).unwrap_or_else(|| DEFAULT_FILE.to_vec()),
            run: text(c"MAKEROOM_RUN_ID").map_or([0; 16], |digits| run_id(&digits)),
            stacks: match text(c"MAKEROOM_STACKS").as_deref() {
                Some(b"none") => StackMode::Off,
                Some(b"native") => StackMode::Native,
                _ => StackMode::Full,
            },
            limit: number(c"MAKEROOM_LIMIT"),
            is_measuring: text(c"MAKEROOM_MEASURE").is_some_and(|value| value == b"on"),
            pool: matches!(text(c"MAKEROOM_POOL").as_deref(), Some(b"on" | b"paging")),
            pages: text(c"MAKEROOM_POOL").as_deref() == Some(b"paging"),
            spill: number(c"MAKEROOM_SPILL"),
            is_watched: text(c"MAKEROOM_STATUS").is_some_and(|value| value == b"on"),
            leaves_arguments_out: text(c"MAKEROOM_COMMAND_LINE").is_some_and(|value| value == b"off"),
            socket: text(c"MAKEROOM_SOCKET"),
            keep: match text(c"MAKEROOM_KEEP").as_deref() {
                Some(b"failed") => Keep::Failed,
                Some(value) => last(value).map_or(Keep::All, Keep::Last),
                None => Keep::All,
            },
            ring: number(c"MAKEROOM_RING"),
            job,
            recorded: RECORDED
                .into_iter()
                .filter_map(|name| Some((name.to_bytes(), text(name)?)))
                .filter(|(_, value)| value.len() <= LONGEST_VALUE)
                .collect(),
        }
    }
}

fn environment(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name is NUL-terminated; no other thread runs yet (see above).
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a NUL-terminated string, which is copied at once.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}

/// The number in `last=N`; at least the recording itself stays.
fn last(value: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(value.strip_prefix(b"last=")?).ok()?;
    digits.parse().ok().filter(|&count| count > 0)
}

fn run_id(digits: &[u8]) -> [u8; 16] {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        if let [high, low] = *pair {
            *byte = digit(high) << 4 | digit(low);
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&CStr, &str)]) -> Config {
        Config::read(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes().to_vec())
        })
    }

    #[test]
    fn an_empty_environment_records_everything_beside_the_program() {
        let config = read(&[]);
        assert!(!config.is_off);
        assert_eq!(config.file, DEFAULT_FILE);
        assert_eq!(config.stacks, StackMode::Full);
        assert_eq!(config.limit, None);
        assert_eq!(config.job, JobIdentity::default());
    }

    #[test]
    fn what_stays_is_read_and_nonsense_keeps_everything() {
        let keep = |value: &str| read(&[(c"MAKEROOM_KEEP", value)]).keep;
        assert_eq!(keep("failed"), Keep::Failed);
        assert_eq!(keep("last=5"), Keep::Last(5));
        for value in ["all", "", "last=0", "last=", "last=x", "none"] {
            assert_eq!(keep(value), Keep::All, "{value}");
        }
    }

    #[test]
    fn pages_come_with_the_pool() {
        let of = |value: &str| {
            let config = read(&[(c"MAKEROOM_POOL", value)]);
            (config.pool, config.pages)
        };
        assert_eq!([of("on"), of("paging"), of("off")], [(true, false), (true, true), (false, false)]);
    }

    #[test]
    fn the_launchers_variables_say_which_rank_this_is() {
        let config = read(&[(c"PMI_RANK", "3"), (c"PMI_SIZE", "8"), (c"AWS_SECRET_ACCESS_KEY", "x")]);
        assert_eq!((config.job.rank, config.job.world_size), (Some(3), Some(8)));
    }

    #[test]
    fn wishes_are_read_and_nonsense_is_left_out() {
        let config = read(&[
            (c"MAKEROOM", "off"),
            (c"MAKEROOM_STACKS", "none"),
            (c"MAKEROOM_LIMIT", "many"),
            (c"MAKEROOM_RUN_ID", "00ff10"),
            (c"MAKEROOM_SOCKET", ""),
        ]);
        assert!(config.is_off);
        assert_eq!(config.stacks, StackMode::Off);
        assert_eq!(config.limit, None);
        assert_eq!(config.run[..4], [0, 255, 16, 0]);
        assert_eq!(config.socket, None);
    }
}
