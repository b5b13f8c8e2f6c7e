//! Chooses the GPU on which the demonstration's programs run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use makeroom_cuda::Driver;
use makeroom_demo::{OnRealCard, Situation};

use crate::cli::Gpu;
use crate::commands::run::library;
use crate::failure::Failure;

/// The GPU the programs run on.
pub(crate) enum Machine {
    /// A real GPU.
    Real { name: String },
    /// The software GPU: the directory of its libraries, and why no real GPU is used (`None` if the user chose this
    /// one).
    Software { folder: PathBuf, reason: Option<String> },
}

impl Machine {
    /// The requested GPU; by default a real one if present.
    pub(crate) fn choose(asked: Option<Gpu>) -> Result<Self, Failure> {
        match asked {
            Some(Gpu::Real) => Self::real().map_err(Failure::Gpu),
            Some(Gpu::Software) => Self::software(None),
            None => match Self::real() {
                Ok(machine) => Ok(machine),
                Err(error) => Self::software(Some(error.to_string())),
            },
        }
    }

    fn real() -> Result<Self, makeroom_cuda::Error> {
        Ok(Self::Real { name: Driver::load()?.device(0)?.name()? })
    }

    fn software(reason: Option<String>) -> Result<Self, Failure> {
        Ok(Self::Software { folder: library::place_software_gpu().map_err(Failure::Library)?, reason })
    }

    /// The name in `--json`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Real { .. } => "real",
            Self::Software { .. } => "software",
        }
    }

    /// The environment of a situation's processes, or why the situation cannot run on this machine.
    pub(crate) fn environment(
        &self,
        situation: &Situation,
        shared: &Path,
    ) -> Result<Vec<(&'static str, OsString)>, &'static str> {
        match (self, situation.real) {
            (Self::Software { folder, .. }, _) => Ok(vec![
                ("LD_LIBRARY_PATH", folder.into()),
                ("MAKEROOM_SIMGPU", situation.software.into()),
                ("MAKEROOM_SIMGPU_DIR", shared.into()),
            ]),
            (Self::Real { .. }, OnRealCard::Never(reason)) => Err(reason),
            (Self::Real { .. }, OnRealCard::Within(limit)) => {
                Ok(vec![("MAKEROOM_LIMIT", limit.get().to_string().into())])
            }
        }
    }
}
