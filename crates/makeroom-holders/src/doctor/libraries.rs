//! Copies of the driver's library that programs would load instead of the installed one: `LD_LIBRARY_PATH` precedes
//! the system's directories.

use super::{Check, Surroundings, Verdict};

pub(super) fn check(surroundings: &Surroundings) -> Option<Check> {
    let directories = surroundings.variable("LD_LIBRARY_PATH")?;
    // The loader uses the first directory that contains the library.
    let directory = directories.split(':').map(str::trim).filter(|directory| !directory.is_empty()).find(
        |directory| surroundings.path(directory.trim_start_matches('/')).join("libcuda.so.1").exists(),
    )?;
    let is_called = |name: &str| directory.trim_end_matches('/').rsplit('/').any(|part| part == name);
    if is_called("stubs") {
        let found = format!(
            "LD_LIBRARY_PATH selects libcuda.so.1 in {directory}: this is only a stub for linking, and CUDA fails with `stub library` (34)"
        );
        let fix = "remove the directory from LD_LIBRARY_PATH; pass it to the linker with -L";
        return Some(Check::new("libraries", Verdict::Problem, found).fix(fix));
    }
    if is_called("compat") {
        let found = format!(
            "LD_LIBRARY_PATH selects libcuda.so.1 in {directory}: forward compatibility works only on data-center GPUs (else error 804) and not with a newer driver (error 803)"
        );
        let fix = "remove the directory from LD_LIBRARY_PATH if the driver supports this CUDA version";
        return Some(Check::new("libraries", Verdict::Warning, found).fix(fix));
    }
    None
}
