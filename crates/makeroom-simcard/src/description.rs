//! The machine described by the environment: `MAKEROOM_SIMGPU=devices=2,memory=8GiB,fail=cuMemAlloc_v2:3`.
//!
//! An unknown key or an invalid value is an error: a test that misspells `memory` must not run on a GPU of the
//! default size.

use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::{DEVICES, PAGE};

/// The machine to simulate.
///
/// | key | default | |
/// |---|---|---|
/// | `devices` | 1 | number of GPUs, at most 16 |
/// | `memory` | 8GiB | total memory of a GPU, as the driver reports it |
/// | `reserve` | 256MiB | reserved memory that NVML reports in addition |
/// | `context` | 512MiB | memory of each context |
/// | `module` | 64KiB | memory of each loaded module |
/// | `host` | 64GiB | host memory that can be pinned or mapped |
/// | `kernel` | 0 | how long a kernel keeps its stream busy, in simulated nanoseconds |
/// | `fail` | | `NAME:N` or `NAME:N:ERROR`: the N-th call of a function fails, with error 2 or the given one; may be repeated |
/// | `slow` | | `NAME:N:MILLISECONDS`: the N-th call of a function is delayed by this time; may be repeated |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Number of GPUs.
    pub devices: usize,
    /// Memory of each GPU in bytes, as the driver reports it; a multiple of [`PAGE`].
    pub memory: u64,
    /// Bytes that NVML adds to a GPU's memory and reports as reserved.
    pub reserve: u64,
    /// Bytes per context.
    pub context: u64,
    /// Bytes per module.
    pub module: u64,
    /// Bytes of host memory that can be pinned or mapped.
    pub host: u64,
    /// Simulated nanoseconds per kernel.
    pub kernel: u64,
    /// Calls to fail.
    pub faults: Vec<Fault>,
    /// Calls to delay.
    pub delays: Vec<Delay>,
}

/// A call to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function's exported name.
    pub function: String,
    /// Which call, counted from 1.
    pub call: u64,
    /// The error it returns.
    pub error: u32,
}

/// A call to delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The function's exported name.
    pub function: String,
    /// Which call, counted from 1.
    pub call: u64,
    /// The delay in milliseconds of real time.
    pub milliseconds: u64,
}

/// An invalid description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError {
    part: String,
    expected: &'static str,
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "MAKEROOM_SIMGPU: `{}` is not understood\n\nhint: {}, as in devices=2,memory=8GiB,fail=cuMemAlloc_v2:3",
            self.part, self.expected
        )
    }
}

impl std::error::Error for DescriptionError {}

impl Default for Description {
    fn default() -> Self {
        Self {
            devices: 1,
            memory: 8 << 30,
            reserve: 256 << 20,
            context: 512 << 20,
            module: 64 << 10,
            host: 64 << 30,
            kernel: 0,
            faults: Vec::new(),
            delays: Vec::new(),
        }
    }
}

impl Description {
    /// The machine that `MAKEROOM_SIMGPU` describes, or the default one.
    pub fn from_environment() -> Result<Self, DescriptionError> {
        Self::parse(&env::var("MAKEROOM_SIMGPU").unwrap_or_default())
    }

    /// Parses `key=value,key=value`.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let mut description = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |expected| DescriptionError { part: part.to_owned(), expected };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("write key=value"))?;
            let size = || parse_size(value).ok_or_else(|| wrong("write a size such as 24GiB, 800MB or 4096"));
            match key {
                "devices" => {
                    let count = value.parse().ok().filter(|count| (1..=DEVICES).contains(count));
                    description.devices = count.ok_or_else(|| wrong("write a number from 1 to 16"))?;
                }
                "memory" => {
                    let memory = size()?.next_multiple_of(PAGE);
                    description.memory = Some(memory)
                        .filter(|bytes| *bytes > 0)
                        .ok_or_else(|| wrong("write a size above 0"))?;
                }
                "reserve" => description.reserve = size()?,
                "context" => description.context = size()?,
                "module" => description.module = size()?,
                "host" => description.host = size()?,
                "kernel" => {
                    description.kernel = value.parse().map_err(|_| wrong("write a number of nanoseconds"))?;
                }
                "fail" => {
                    let fault =
                        Fault::parse(value).ok_or_else(|| wrong("write NAME:CALL or NAME:CALL:ERROR"))?;
                    description.faults.push(fault);
                }
                "slow" => {
                    let delay = Delay::parse(value).ok_or_else(|| wrong("write NAME:CALL:MILLISECONDS"))?;
                    description.delays.push(delay);
                }
                _ => {
                    return Err(wrong(
                        "the keys are devices, memory, reserve, context, module, host, kernel, fail and slow",
                    ));
                }
            }
        }
        Ok(description)
    }

    /// Pages per GPU.
    pub fn pages(&self) -> u64 {
        self.memory / PAGE
    }

    /// The shared file of these GPUs. Its name contains their number and sizes, so that processes with different
    /// descriptions do not share GPUs.
    pub fn ledger_path(&self) -> PathBuf {
        directory().join(format!("{}x{}+{}.cards2", self.devices, self.memory, self.reserve))
    }
}

impl Fault {
    /// Parses `NAME:CALL` or `NAME:CALL:ERROR`.
    pub fn parse(text: &str) -> Option<Self> {
        const OUT_OF_MEMORY: u32 = 2;
        let (function, call, error) = parse_call(text)?;
        let error = error.map_or(Some(OUT_OF_MEMORY), |error| error.parse().ok())?;
        Some(Self { function, call, error })
    }
}

impl Delay {
    /// Parses `NAME:CALL:MILLISECONDS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (function, call, milliseconds) = parse_call(text)?;
        Some(Self { function, call, milliseconds: milliseconds?.parse().ok()? })
    }
}

/// Parses `NAME:CALL` and returns the rest.
fn parse_call(text: &str) -> Option<(String, u64, Option<&str>)> {
    let mut parts = text.splitn(3, ':');
    let function = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let call = parts.next()?.parse().ok().filter(|call| *call > 0)?;
    Some((function, call, parts.next()))
}

/// Parses a size: `24GiB`, `800MB`, `512`.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes < 1 << 46)
}

/// The directory of the shared file.
fn directory() -> PathBuf {
    if let Some(directory) = env::var_os("MAKEROOM_SIMGPU_DIR") {
        return PathBuf::from(directory);
    }
    if let Some(directory) = env::var_os("XDG_RUNTIME_DIR") {
        return PathBuf::from(directory).join("makeroom-simgpu");
    }
    // SAFETY: getuid has no preconditions and cannot fail.
    let user = unsafe { libc::getuid() };
    env::temp_dir().join(format!("makeroom-simgpu-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_key() {
        let text = "devices=2, memory=24GiB,reserve=1MiB,context=300MB,module=4096,host=1GiB,kernel=500,\
                    fail=cuMemAlloc_v2:3,fail=cuLaunchKernel:1:701,slow=cuInit:2:50";
        let description = Description::parse(text).unwrap();
        assert_eq!((description.devices, description.pages()), (2, 12288));
        assert_eq!((description.context, description.kernel), (300_000_000, 500));
        let second = Fault { function: "cuLaunchKernel".into(), call: 1, error: 701 };
        assert_eq!(description.faults[0].error, 2);
        assert_eq!(description.faults[1], second);
        assert_eq!(description.delays, [Delay { function: "cuInit".into(), call: 2, milliseconds: 50 }]);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in [
            "memroy=8GiB",
            "devices=0",
            "devices=17",
            "memory=8XB",
            "memory=0",
            "fail=cuInit",
            "fail=:1",
            "fail=cuInit:1:2:3",
            "slow=cuInit:1",
            "x",
        ] {
            assert!(Description::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rounds_memory_to_pages() {
        assert_eq!(Description::parse("memory=3000000").unwrap().memory, 4 << 20);
    }
}
