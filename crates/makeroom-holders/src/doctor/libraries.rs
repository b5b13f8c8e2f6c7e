//! Libraries that programs would load in place of the driver's own: `LD_LIBRARY_PATH` comes before everything that the
//! system knows.

use super::{Check, Surroundings, Verdict};

pub(super) fn check(surroundings: &Surroundings) -> Option<Check> {
    let folders = surroundings.variable("LD_LIBRARY_PATH")?;
    // The first folder that has the library is the one it is loaded from.
    let folder = folders
        .split(':')
        .map(str::trim)
        .filter(|folder| !folder.is_empty())
        .find(|folder| surroundings.path(folder.trim_start_matches('/')).join("libcuda.so.1").exists())?;
    let is_called = |name: &str| folder.trim_end_matches('/').rsplit('/').any(|part| part == name);
    if is_called("stubs") {
        let found = format!(
            "LD_LIBRARY_PATH finds libcuda.so.1 in {folder}: that is the stub for linking, and CUDA fails with `stub library` (34)"
        );
        let fix = "remove the directory from LD_LIBRARY_PATH; pass it to the linker with -L";
        return Some(Check::new("libraries", Verdict::Problem, found).fix(fix));
    }
    if is_called("compat") {
        let found = format!(
            "LD_LIBRARY_PATH finds libcuda.so.1 in {folder}: forward compatibility works only on data-center GPUs (else error 804) and not with a newer driver (error 803)"
        );
        let fix = "remove the directory from LD_LIBRARY_PATH if the driver supports this CUDA version";
        return Some(Check::new("libraries", Verdict::Warning, found).fix(fix));
    }
    None
}
