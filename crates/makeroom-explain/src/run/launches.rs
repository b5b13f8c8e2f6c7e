//! Why a kernel failed to launch, as far as the driver's error and the launch parameters show.

use makeroom_core::{Bytes, FailedLaunch};

use super::LaunchFailure;
use crate::native::readable;
use crate::trace::Places;

/// Dynamic shared memory that needs no opt-in.
const SHARED_BY_DEFAULT: Bytes = Bytes::kib(48);
/// The maximum for one block on any GPU (compute capability 9.0 and 10.0).
const MOST_SHARED: Bytes = Bytes::kib(227);

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const OUT_OF_RESOURCES: u32 = 701;
const COOPERATIVE_TOO_LARGE: u32 = 720;

/// Explains a failed launch.
pub(super) fn explain(launch: &FailedLaunch, places: Places<'_>) -> LaunchFailure {
    let shared = launch.shared_memory;
    let (reason, is_for_resources, is_certain) = match launch.error {
        INVALID_VALUE if shared > MOST_SHARED => (
            format!("it uses {shared} of shared memory per block, and no GPU has more than {MOST_SHARED}"),
            true,
            true,
        ),
        INVALID_VALUE if shared > SHARED_BY_DEFAULT => (
            format!(
                "it uses {shared} of shared memory per block; more than {SHARED_BY_DEFAULT} must be enabled first"
            ),
            true,
            false,
        ),
        OUT_OF_RESOURCES => {
            ("its registers, threads or shared memory exceed the limits of a block".to_owned(), true, true)
        }
        OUT_OF_MEMORY => {
            ("the GPU had no memory left for the kernel's stacks or the device heap".to_owned(), true, false)
        }
        COOPERATIVE_TOO_LARGE => ("it has more blocks than can run at the same time".to_owned(), true, true),
        _ => ("the cause is not memory".to_owned(), false, false),
    };
    let kernel = launch.kernel.as_deref().or_else(|| places.kernel(launch.stack));
    LaunchFailure {
        kernel: kernel.map(|kernel| readable(kernel).into_owned()),
        count: launch.count,
        error: launch.error,
        error_name: name(launch.error),
        shared_memory: shared,
        reason,
        is_for_resources,
        is_certain,
        site: places.without(launch.stack, kernel.unwrap_or("")),
    }
}

/// The driver's name for an error that launches return.
fn name(error: u32) -> &'static str {
    match error {
        INVALID_VALUE => "invalid value",
        OUT_OF_MEMORY => "out of memory",
        200 => "invalid image",
        201 => "invalid context",
        209 => "no code for this device",
        218 => "invalid PTX",
        222 => "unsupported PTX version",
        400 => "invalid handle",
        700 => "illegal address in an earlier kernel",
        OUT_OF_RESOURCES => "out of resources",
        702 => "timeout in an earlier kernel",
        710 => "assertion failure in an earlier kernel",
        716 => "misaligned address in an earlier kernel",
        719 => "failure in an earlier kernel",
        COOPERATIVE_TOO_LARGE => "cooperative launch too large",
        900 => "not permitted during a capture",
        901 => "the capture is invalid",
        _ => "see cuGetErrorName",
    }
}
