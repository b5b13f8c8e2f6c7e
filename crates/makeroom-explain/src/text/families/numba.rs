//! Numba's calls of the driver.
//!
//! | versions | wording |
//! |---|---|
//! | – 0.5x | `[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY` |
//! | 0.60 – | `[CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY` |
//!
//! No figures; the name of the call says what kind of memory was refused.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::pattern;
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family { anchors: &["Call to cu"], read };

static CALL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Call to (cu\w+) results in (?:CUDA_ERROR_|\w*\.CUDA_ERROR_)?(OUT_OF_MEMORY|LAUNCH_OUT_OF_RESOURCES)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = CALL.captures(&passage.flat)?;
    let mut facts = Facts::new("numba", Resource::Device, passage);
    let call = &found[1];
    if &found[2] == "LAUNCH_OUT_OF_RESOURCES" {
        facts.resource = Resource::Kernel;
        facts.state(
            Cause::SharedMemoryOrKernelResource,
            Certainty::Certain,
            "The kernel needs more registers or shared memory per block than a multiprocessor has; device memory is not the reason.",
        );
    } else if call.contains("Host") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            format!("{call} was refused: it asks for pinned host memory."),
        );
    } else if call.contains("Ctx") {
        facts.state(
            Cause::OtherProcesses,
            Certainty::Likely,
            "The driver had no memory left for a context. This process holds nothing yet, so somebody else holds the device.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn both_wordings_are_read_and_state_nothing() {
        for text in [
            "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
            "numba.cuda.cudadrv.driver.CudaAPIError: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in\nCUDA_ERROR_OUT_OF_MEMORY",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(
                (facts.framework, facts.resource, facts.statements.len()),
                ("numba", Resource::Device, 0)
            );
        }
    }

    #[test]
    fn the_call_names_the_resource() {
        for (text, cause) in [
            ("[2] Call to cuMemHostAlloc results in CUDA_ERROR_OUT_OF_MEMORY", Cause::HostMemory),
            (
                "[701] Call to cuLaunchKernel results in CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                Cause::SharedMemoryOrKernelResource,
            ),
            (
                "[2] Call to cuDevicePrimaryCtxRetain results in CUDA_ERROR_OUT_OF_MEMORY",
                Cause::OtherProcesses,
            ),
        ] {
            assert_eq!(facts_in(text).unwrap().statements[0].cause, cause, "{text}");
        }
    }

    #[test]
    fn other_errors_are_not_taken() {
        assert!(facts_in("[1] Call to cuMemcpyHtoD results in CUDA_ERROR_INVALID_VALUE").is_none());
    }
}
