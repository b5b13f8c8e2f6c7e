//! Which PyTorch a command is going to import, found by files alone: no interpreter is started.
//!
//! The interpreter is a word of the command or stands in the first line of a launcher (`torchrun`, `accelerate`). Its
//! packages lie below its virtual environment or its prefix. Whatever cannot be found this way is unknown.

use std::ffi::{OsStr, OsString};
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

/// As much of a launcher as its interpreter can stand in: pip writes long paths into the second line.
const HEAD: u64 = 1024;

/// The version of the PyTorch that a command imports, if it can be found.
pub(super) fn find(command: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Option<Version> {
    let interpreter = interpreter(command)?;
    package_dirs(&interpreter, environment).iter().find_map(|dir| read(&dir.join("torch/version.py")))
}

/// Whether a command may run Python: everything but a compiled program that is not an interpreter.
pub(super) fn may_run_python(command: &[OsString]) -> bool {
    let Some(path) = command.first().and_then(|program| obstacle::search(program)) else { return true };
    interpreter(command).is_some() || !head(&path).is_some_and(|head| head.starts_with(b"\x7fELF"))
}

/// The interpreter that a command starts, as it is named: links of a virtual environment are not followed.
fn interpreter(command: &[OsString]) -> Option<PathBuf> {
    // `env`, `nice` and others stand before it.
    if let Some(word) = command.iter().find(|word| is_python(Path::new(word))) {
        return obstacle::search(word);
    }
    let path = obstacle::search(command.first()?)?;
    let head = head(&path)?;
    let text = String::from_utf8_lossy(head.strip_prefix(b"#!")?).into_owned();
    let mut lines = text.lines();
    let first = lines.next()?;
    // Where the path is too long for the first line, the second one is: '''exec' /long/path/python "$0" "$@"
    let second = lines.next().filter(|line| line.starts_with("'''exec'")).unwrap_or_default();
    let words = first.split_whitespace().chain(second.split_whitespace());
    let word = words.map(|word| word.trim_matches(['"', '\''])).find(|word| is_python(Path::new(word)))?;
    obstacle::search(OsStr::new(word))
}

fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let version = name.strip_prefix("python").unwrap_or("-");
    version.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    fs::File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Where an interpreter looks for packages, first to last.
fn package_dirs(interpreter: &Path, environment: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        environment("PYTHONPATH").map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default();
    let resolved = fs::canonicalize(interpreter).unwrap_or_else(|_| interpreter.to_owned());
    // python3.12 has its packages below lib/python3.12, whatever other versions lie beside it.
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

/// The folders of packages below a prefix, of one version of Python where it is known.
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
    let text = fs::read_to_string(path).ok()?;
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
    }
}
