//! The version of PyTorch that a command will import, found from files alone: no interpreter is started.
//!
//! The interpreter is the command itself, an argument of a program that runs its arguments unchanged (`env`, `nice`),
//! or in the first line of a launcher (`torchrun`, `accelerate`). Its packages are in its virtual environment or
//! prefix. In all other cases the version is unknown: `uv run python` and `conda run python` start another interpreter
//! than the shell would.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::commands::run::obstacle;

/// A version of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// How much of a launcher to read to find its interpreter: pip writes long paths into the second line.
const HEAD: u64 = 1024;
/// PyTorch's version file has a few hundred bytes.
const LARGEST_VERSION_FILE: u64 = 64 << 10;
/// Programs that run the command in their arguments, searched for as the shell does.
const WRAPPERS: [&str; 15] = [
    "chrt", "env", "ionice", "mpiexec", "mpirun", "nice", "nohup", "numactl", "nsys", "setsid", "srun",
    "stdbuf", "taskset", "time", "timeout",
];
/// Compiled programs that may start Python without naming it.
const SHELLS: [&str; 12] =
    ["bash", "conda", "dash", "fish", "ksh", "make", "mamba", "micromamba", "pixi", "sh", "uv", "zsh"];

/// The version of PyTorch that a command imports, if it can be found.
pub(super) fn find(command: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Option<Version> {
    let interpreter = interpreter(command)?;
    package_dirs(&interpreter, environment).iter().find_map(|dir| read(&dir.join("torch/version.py")))
}

/// Whether a command may import PyTorch: not if it does not run Python, or if its Python has no package of this name.
pub(super) fn may_import_torch(command: &[OsString], environment: impl Fn(&str) -> Option<String>) -> bool {
    let has_torch = |dir: &PathBuf| {
        // A package in development is a link of the same name.
        let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().to_ascii_lowercase().contains("torch"))
    };
    let may_have_torch = |interpreter: PathBuf| {
        let dirs = package_dirs(&interpreter, environment);
        dirs.iter().any(has_torch) || !dirs.iter().any(|dir| dir.is_dir())
    };
    may_run_python(command) && interpreter(command).is_none_or(may_have_torch)
}

/// Whether a command may run Python: true except for compiled programs that are known to run neither Python nor
/// scripts.
fn may_run_python(command: &[OsString]) -> bool {
    let Some(program) = command.first() else { return false };
    let Some(path) = obstacle::search(program) else { return true };
    let is_script = |word: &OsString| {
        let path = Path::new(word);
        is_python(path) || path.extension().is_some_and(|extension| extension == "py" || extension == "sh")
    };
    is_one_of(program, &SHELLS)
        || is_one_of(program, &WRAPPERS)
        || command.iter().any(is_script)
        || !head(&path).is_some_and(|head| head.starts_with(b"\x7fELF"))
}

/// The interpreter that a command starts, under its given name: links of a virtual environment are not followed.
fn interpreter(command: &[OsString]) -> Option<PathBuf> {
    let program = command.first()?;
    if is_python(Path::new(program)) {
        return obstacle::search(program);
    }
    if is_one_of(program, &WRAPPERS) {
        return obstacle::search(command.iter().find(|word| is_python(Path::new(word)))?);
    }
    let head = head(&obstacle::search(program)?)?;
    let text = String::from_utf8_lossy(head.strip_prefix(b"#!")?).into_owned();
    let mut lines = text.lines();
    let first = lines.next()?;
    // If the path is too long for the first line, it is in the second: '''exec' /long/path/python "$0" "$@"
    let second = lines.next().filter(|line| line.starts_with("'''exec'")).unwrap_or_default();
    let words = first.split_whitespace().chain(second.split_whitespace());
    let word = words.map(|word| word.trim_matches(['"', '\''])).find(|word| is_python(Path::new(word)))?;
    obstacle::search(OsStr::new(word))
}

fn is_one_of(program: &OsStr, names: &[&str]) -> bool {
    Path::new(program).file_name().and_then(OsStr::to_str).is_some_and(|name| names.contains(&name))
}

fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let version = name.strip_prefix("python").unwrap_or("-");
    version.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
}

fn head(path: &Path) -> Option<Vec<u8>> {
    beginning(path, HEAD)
}

/// The first bytes of a file, without waiting if it is a pipe.
fn beginning(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut beginning = Vec::new();
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    fs::File::open(path).ok()?.take(most).read_to_end(&mut beginning).ok()?;
    Some(beginning)
}

/// The directories in which an interpreter searches for packages, in order.
fn package_dirs(interpreter: &Path, environment: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        environment("PYTHONPATH").map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default();
    let resolved = fs::canonicalize(interpreter).unwrap_or_else(|_| interpreter.to_owned());
    // python3.12 has its packages in lib/python3.12, next to those of other versions.
    let name = resolved.file_name().and_then(OsStr::to_str).filter(|name| name.contains('.'));
    let prefix = |path: &Path| path.parent().and_then(Path::parent).map(Path::to_owned);
    let own = prefix(interpreter);
    let settings = own.as_ref().and_then(|own| fs::read_to_string(own.join("pyvenv.cfg")).ok());
    dirs.extend(own.iter().flat_map(|own| below(own, name)));
    let is_closed = settings.is_some_and(|settings| !includes_system_packages(&settings));
    if is_closed {
        return dirs;
    }
    if let Some(home) = environment("HOME") {
        dirs.extend(below(&Path::new(&home).join(".local"), name));
    }
    dirs.extend(
        prefix(&resolved).iter().flat_map(|prefix| {
            [below(&prefix.join("local"), name), below(prefix, name)].into_iter().flatten()
        }),
    );
    dirs
}

fn includes_system_packages(settings: &str) -> bool {
    settings.lines().filter_map(|line| line.split_once('=')).any(|(name, value)| {
        name.trim() == "include-system-site-packages" && value.trim().eq_ignore_ascii_case("true")
    })
}

/// The package directories below a prefix, for one version of Python if it is known.
fn below(prefix: &Path, version: Option<&str>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for library in ["lib", "lib64"] {
        let Ok(entries) = fs::read_dir(prefix.join(library)) else { continue };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        for name in names.into_iter().filter(|name| name.starts_with("python3")) {
            if name == "python3" || version.is_none_or(|version| version == name) {
                let dir = prefix.join(library).join(name);
                found.extend(["site-packages", "dist-packages"].map(|packages| dir.join(packages)));
            }
        }
    }
    found
}

/// The version in PyTorch's own file: `__version__ = '2.11.0+cu130'`.
fn read(path: &Path) -> Option<Version> {
    let bytes = beginning(path, LARGEST_VERSION_FILE)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    let value = line.split_once('=')?.1.trim().trim_matches(['"', '\'']);
    let mut numbers = value.split('.').map(|number| number.parse().ok());
    Some(Version { major: numbers.next()??, minor: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("makeroom-version-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn torch(&self, packages: &str, version: &str) {
            let text = format!(
                "from typing import Optional\n__all__ = []\n__version__ = '{version}'\ndebug = False\n"
            );
            self.file(&format!("{packages}/torch/version.py"), &text);
        }

        fn version(&self, command: &[&str]) -> Option<(u32, u32)> {
            let command: Vec<OsString> = command
                .iter()
                .map(|word| match word.strip_prefix('@') {
                    Some(path) => self.0.join(path).into_os_string(),
                    None => word.into(),
                })
                .collect();
            find(&command, |_| None).map(|version| (version.major, version.minor))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_virtual_environment_has_its_own_pytorch() {
        let tree = Tree::new("venv");
        let base = tree.file("usr/bin/python3.12", "\x7fELF");
        tree.torch("usr/lib/python3/dist-packages", "1.13.1");
        tree.torch("usr/lib/python3.11/dist-packages", "2.0.0");
        let settings =
            tree.file("venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
        fs::create_dir_all(tree.0.join("venv/bin")).unwrap();
        symlink(&base, tree.0.join("venv/bin/python")).unwrap();
        assert_eq!(tree.version(&["@venv/bin/python", "train.py"]), None, "the system's is out of reach");
        fs::write(&settings, "include-system-site-packages = True\n").unwrap();
        assert_eq!(tree.version(&["@venv/bin/python", "train.py"]), Some((1, 13)));
        tree.torch("venv/lib/python3.12/site-packages", "2.11.0+cu130");
        assert_eq!(tree.version(&["@venv/bin/python", "train.py"]), Some((2, 11)));
        assert_eq!(tree.version(&["nice", "-n", "5", "@venv/bin/python", "-u", "train.py"]), Some((2, 11)));
        assert_eq!(tree.version(&["@usr/bin/python3.12", "train.py"]), Some((1, 13)), "3.11's is another's");
        let other = tree.file("bin/uv", "\x7fELF");
        let other = other.to_str().unwrap();
        assert_eq!(tree.version(&[other, "run", "@venv/bin/python", "train.py"]), None, "uv finds another");
    }

    #[test]
    fn a_launcher_names_its_interpreter() {
        let tree = Tree::new("launcher");
        tree.file("env/bin/python3", "\x7fELF");
        tree.torch("env/lib/python3.10/site-packages", "2.0.1");
        let python = tree.0.join("env/bin/python3");
        tree.file("env/bin/torchrun", &format!("#!{}\nimport sys\n", python.display()));
        assert_eq!(tree.version(&["@env/bin/torchrun", "--nproc-per-node", "2", "train.py"]), Some((2, 0)));
        let long = format!("#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\nimport sys\n", python.display());
        tree.file("env/bin/accelerate", &long);
        assert_eq!(tree.version(&["@env/bin/accelerate", "launch", "train.py"]), Some((2, 0)));
        tree.file("env/bin/job", "#!/bin/sh\npython3 train.py\n");
        assert_eq!(tree.version(&["@env/bin/job"]), None, "what a shell starts is not known");
    }

    #[test]
    fn what_cannot_be_found_is_unknown() {
        let tree = Tree::new("unknown");
        tree.file("bin/python3", "\x7fELF");
        assert_eq!(tree.version(&["@bin/python3", "train.py"]), None, "there is no PyTorch");
        tree.file("lib/python3.9/site-packages/torch/version.py", "__version__ = something()\n");
        assert_eq!(tree.version(&["@bin/python3", "train.py"]), None);
        assert_eq!(tree.version(&["@bin/no-such-program"]), None);
        assert_eq!(tree.version(&[]), None);
        tree.file("solver", "\x7fELF\x02");
        let may = |word: &str| may_run_python(&[tree.0.join(word).into_os_string(), "x".into()]);
        assert!(!may("solver") && may("bin/python3") && may("no-such-program"));
        for command in [&["sh", "-c", "x"][..], &["uv", "run", "x"], &["nsys", "profile", "x"]] {
            tree.file(command[0], "\x7fELF\x02");
            let mut words: Vec<OsString> = command.iter().map(OsString::from).collect();
            words[0] = tree.0.join(command[0]).into_os_string();
            assert!(may_run_python(&words), "{command:?}");
        }
        let trained = [tree.0.join("solver").into_os_string(), "train.py".into()];
        assert!(may_run_python(&trained) && !may_run_python(&[]));
        let imports = |word: &str| may_import_torch(&[tree.0.join(word).into_os_string()], |_| None);
        assert!(!imports("solver") && imports("bin/python3") && imports("sh"));
        fs::rename(tree.0.join("lib"), tree.0.join("old")).unwrap();
        assert!(imports("bin/python3"), "there is no folder of packages to look at");
        fs::create_dir_all(tree.0.join("lib/python3.9/site-packages/cupy")).unwrap();
        assert!(!imports("bin/python3"), "CuPy alone");
        tree.file("lib/python3.9/site-packages/__editable__.torch-2.11.0.pth", "");
        assert!(imports("bin/python3"));
        fs::remove_dir_all(tree.0.join("lib")).unwrap();
        fs::rename(tree.0.join("old"), tree.0.join("lib")).unwrap();
        let pipe = tree.0.join("lib/python3.9/site-packages/torch/version.py");
        fs::remove_file(&pipe).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert_eq!(tree.version(&["@bin/python3", "train.py"]), None, "nobody writes to the pipe");
    }
}
