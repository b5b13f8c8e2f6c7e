//! What the environment asks for, read once when the library is loaded.
//!
//! At that moment the process has one thread, so nobody changes the environment meanwhile; later, `getenv` would race
//! with the program's own `setenv`.

use std::ffi::CStr;
use std::sync::OnceLock;

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

/// The environment's wishes.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a variable of its own")]
pub(crate) struct Config {
    /// Whether the library is to do nothing at all.
    pub(crate) is_off: bool,
    /// The recording's path, with `%p` for the process id.
    pub(crate) file: Vec<u8>,
    /// The run this process belongs to.
    pub(crate) run: [u8; 16],
    /// Which stacks events carry.
    pub(crate) stacks: StackMode,
    /// The device memory this process may see and take.
    pub(crate) limit: Option<u64>,
    /// Whether the time spent in hooks is added up.
    pub(crate) is_measuring: bool,
    /// Whether the program's memory comes from makeroom's pool.
    pub(crate) pool: bool,
    /// The host memory that may stand in for device memory.
    pub(crate) spill: Option<u64>,
    /// Whether `run` wants to hear what the process holds, to show it.
    pub(crate) is_watched: bool,
    /// Whether the recording names the program without its arguments.
    pub(crate) leaves_arguments_out: bool,
    /// Who wants to hear of refusals.
    pub(crate) socket: Option<Vec<u8>>,
}

impl Config {
    /// Whether calls matter even where nothing is recorded: a limit or the pool holds for the whole life of a process.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_off && (self.pool || self.limit.is_some())
    }
}

const DEFAULT_FILE: &[u8] = b"makeroom.%p.room";

static CONFIG: OnceLock<Config> = OnceLock::new();

/// The environment's wishes. Before the library's constructor ran, which only constructors of other preloaded
/// libraries can see, they are read at that moment.
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
        Self {
            is_off: text(c"MAKEROOM").is_some_and(|value| value == b"off"),
            file: text(c"MAKEROOM_FILE").unwrap_or_else(|| DEFAULT_FILE.to_vec()),
            run: text(c"MAKEROOM_RUN_ID").map_or([0; 16], |digits| run_id(&digits)),
            stacks: match text(c"MAKEROOM_STACKS").as_deref() {
                Some(b"none") => StackMode::Off,
                Some(b"native") => StackMode::Native,
                _ => StackMode::Full,
            },
            limit: number(c"MAKEROOM_LIMIT"),
            is_measuring: text(c"MAKEROOM_MEASURE").is_some_and(|value| value == b"on"),
            pool: text(c"MAKEROOM_POOL").as_deref() == Some(b"on"),
            spill: number(c"MAKEROOM_SPILL"),
            is_watched: text(c"MAKEROOM_STATUS").is_some_and(|value| value == b"on"),
            leaves_arguments_out: text(c"MAKEROOM_COMMAND_LINE").is_some_and(|value| value == b"off"),
            socket: text(c"MAKEROOM_SOCKET"),
        }
    }
}

fn environment(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name ends in a zero byte; no other thread runs yet (see above).
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` answers a string that ends in a zero byte and is copied before anything else happens.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
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
