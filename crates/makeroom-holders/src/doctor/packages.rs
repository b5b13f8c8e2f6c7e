//! Finds the frameworks that programs started from here would import, from directory names. Python is not started.

use std::fs;
use std::path::{Path, PathBuf};

use super::Surroundings;

/// Installed packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// PyTorch.
    pub torch: Option<Torch>,
}

/// An installed PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// Version string: `2.11.0+cu130`.
    pub version: String,
    /// Major and minor version: 2 and 11.
    pub release: (u32, u32),
    /// The CUDA version it was built for, if the version string contains it.
    pub cuda: Option<(u32, u32)>,
}

impl Packages {
    /// Searches the active environment, then that of the first Python in `PATH`.
    pub fn find(surroundings: &Surroundings) -> Self {
        let active =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| surroundings.variable(name));
        let mut prefixes: Vec<PathBuf> = active.map(PathBuf::from).collect();
        let path = surroundings.variable("PATH").unwrap_or_default();
        let python = std::env::split_paths(path).find(|directory| {
            let directory = directory.strip_prefix("/").unwrap_or(directory);
            surroundings.root.join(directory).join("python3").exists()
        });
        prefixes.extend(python.and_then(|directory| directory.parent().map(Path::to_path_buf)));
        let torch = prefixes.iter().find_map(|prefix| {
            let prefix = prefix.strip_prefix("/").unwrap_or(prefix);
            torch_below(&surroundings.root.join(prefix))
        });
        Self { torch }
    }
}

/// PyTorch in `PREFIX/lib/python3.*/site-packages`.
fn torch_below(prefix: &Path) -> Option<Torch> {
    let directories =
        |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    directories(&prefix.join("lib"))
        .filter(|directory| {
            directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"))
        })
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)))
        .flat_map(|packages| directories(&packages).collect::<Vec<_>>())
        .find_map(|package| Torch::parse(&package.file_name()?.to_string_lossy()))
}

impl Torch {
    /// Parses a package's metadata directory name: `torch-2.11.0+cu130.dist-info`.
    fn parse(directory: &str) -> Option<Self> {
        let version = directory.strip_prefix("torch-")?.strip_suffix(".dist-info")?;
        let (release, build) = version.split_once('+').unwrap_or((version, ""));
        let mut numbers = release.split('.').map_while(|part| part.parse().ok());
        let release = (numbers.next()?, numbers.next()?);
        let cuda = build.strip_prefix("cu").filter(|digits| digits.len() >= 3).and_then(|digits| {
            let (major, minor) = digits.split_at(digits.len() - 1);
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        Some(Self { version: version.to_owned(), release, cuda })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_names_of_packages() {
        let torch = Torch::parse("torch-2.11.0+cu130.dist-info").unwrap();
        assert_eq!((torch.release, torch.cuda), ((2, 11), Some((13, 0))));
        let plain = Torch::parse("torch-2.9.1.dist-info").unwrap();
        assert_eq!((plain.release, plain.cuda), ((2, 9), None));
        assert_eq!(Torch::parse("torch-1.13.1+cu117.dist-info").unwrap().cuda, Some((11, 7)));
        assert_eq!(Torch::parse("torch-2.1.0+cpu.dist-info").unwrap().cuda, None);
        assert_eq!(Torch::parse("torchvision-0.20.dist-info"), None);
        assert_eq!(Torch::parse("torch"), None);
    }
}
