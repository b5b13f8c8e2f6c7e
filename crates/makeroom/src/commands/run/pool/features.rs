//! What PyTorch's stream-ordered backend cannot do, looked for in the source of a Python program before it starts.
//!
//! PyTorch chooses its backend when it is imported, long before a program reaches the line that would fail. So the
//! script and the modules beside it that it imports are read, as text: a feature that is merely mentioned counts,
//! because a run without the pool is better than one that breaks. What installed packages do is not seen.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A line that needs PyTorch's own allocator.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Feature {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) what: &'static str,
}

/// A word in the source, and what it means.
const WORDS: [(&str, &str); 11] = [
    ("_record_memory_history", "PyTorch's memory history"),
    ("_dump_snapshot", "PyTorch's memory snapshots"),
    ("memory_snapshot", "PyTorch's memory snapshots"),
    ("memory._snapshot", "PyTorch's memory snapshots"),
    ("MemPool", "torch.cuda.MemPool"),
    ("use_mem_pool", "torch.cuda.MemPool"),
    ("reduce-overhead", "torch.compile's reduce-overhead mode"),
    ("max-autotune", "torch.compile's max-autotune mode"),
    ("CUDAPluggableAllocator", "an allocator of its own"),
    ("_share_cuda_", "sharing of CUDA tensors between processes"),
    ("import vllm", "vLLM, which arranges GPU memory itself"),
];

/// Files and bytes that are read at most: a program is not searched for ever.
const MOST_FILES: usize = 200;
const LARGEST_FILE: u64 = 1 << 20;

/// The first line of a Python program that the pool's way of serving PyTorch would break.
pub(super) fn unsupported(command: &[OsString]) -> Option<Feature> {
    if let Some(feature) = in_words(command) {
        return Some(feature);
    }
    let script = script(command)?;
    let mut waiting = VecDeque::from([script]);
    let mut seen = HashSet::new();
    while let Some(path) = waiting.pop_front() {
        if seen.len() >= MOST_FILES || !seen.insert(path.clone()) {
            continue;
        }
        let Some(source) = read(&path) else { continue };
        if let Some(feature) = find(&path, &source) {
            return Some(feature);
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        waiting.extend(imports(&source).flat_map(|module| candidates(folder, &module)));
    }
    None
}

/// A feature in a program that stands on the command line itself, behind `-c`.
fn in_words(command: &[OsString]) -> Option<Feature> {
    let is_python = Path::new(command.first()?).file_name()?.to_str()?.starts_with("python");
    let option = command.iter().position(|word| word == "-c").filter(|_| is_python)?;
    find(Path::new("-c"), &command.get(option + 1)?.to_string_lossy())
}

/// The script that a command runs, if it runs Python.
fn script(command: &[OsString]) -> Option<PathBuf> {
    let (program, arguments) = command.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    if Path::new(name).extension().is_some_and(|extension| extension == "py") {
        return Some(PathBuf::from(program));
    }
    let is_launcher = matches!(name, "torchrun" | "accelerate" | "deepspeed");
    if !name.starts_with("python") && !is_launcher {
        return None;
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        match &*text {
            "-m" => {
                let module = arguments.next()?.to_str()?.replace('.', "/");
                let paths = [format!("{module}.py"), format!("{module}/__main__.py")];
                return paths.into_iter().map(PathBuf::from).find(|path| path.is_file());
            }
            "-c" => return None,
            "-X" | "-W" => {
                arguments.next();
            }
            _ if text.ends_with(".py") => return Some(PathBuf::from(argument)),
            // A launcher's own options and their values come first, and its commands have no dot.
            _ if text.starts_with('-') || is_launcher => {}
            _ => return Some(PathBuf::from(argument)),
        }
    }
    None
}

fn read(path: &Path) -> Option<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST_FILE);
    is_small
        .then(|| std::fs::read(path).ok())
        .flatten()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn find(path: &Path, source: &str) -> Option<Feature> {
    let shares =
        source.contains("torch.multiprocessing") || source.contains("from torch import multiprocessing");
    for (index, line) in source.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        let known = WORDS.iter().find(|(word, _)| code.contains(word)).map(|(_, what)| *what);
        let sends = shares && ["Queue(", "Pipe("].iter().any(|word| code.contains(word));
        let what = known.or(sends.then_some("sharing of tensors between processes"));
        if let Some(what) = what {
            return Some(Feature { file: path.to_owned(), line: index + 1, what });
        }
    }
    None
}

/// The names of imported modules.
fn imports(source: &str) -> impl Iterator<Item = String> {
    let statements = source.lines().map(str::trim).filter_map(|line| {
        let rest = line.strip_prefix("import ").or_else(|| line.strip_prefix("from "))?;
        Some(rest.split(" import ").next().unwrap_or(rest))
    });
    statements
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.split_whitespace().next())
        .map(|name| name.trim_start_matches('.').to_owned())
        .collect::<Vec<_>>()
        .into_iter()
}

/// Where a module would be beside the file that imports it.
fn candidates(folder: &Path, module: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let base = folder.join(module.replace('.', "/"));
    [base.with_extension("py"), base.join("__init__.py")].into_iter().filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("makeroom-features-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap_or(&folder)).ok();
            std::fs::write(path, text).ok();
        }
        folder
    }

    #[test]
    fn features_are_found_in_the_script_and_in_what_it_imports() {
        let folder = folder(
            "found",
            &[
                ("train.py", "import torch\nfrom model import Net\nimport tools.data as data\n"),
                ("model.py", "# MemPool is only spoken of\n"),
                ("tools/data.py", "x = 1\n"),
                ("graphs.py", "import torch\n\ncompiled = torch.compile(f, mode='reduce-overhead')\n"),
            ],
        );
        let run = |script: &str| unsupported(&["python3".into(), "-u".into(), folder.join(script).into()]);
        assert_eq!(run("train.py"), None);
        let feature = run("graphs.py").map(|feature| (feature.line, feature.what));
        assert_eq!(feature, Some((3, "torch.compile's reduce-overhead mode")));
        std::fs::write(folder.join("model.py"), "pool = torch.cuda.MemPool()\n").ok();
        assert_eq!(run("train.py").map(|feature| feature.file), Some(folder.join("model.py")));
        std::fs::remove_dir_all(folder).ok();
    }

    #[test]
    fn the_script_is_found_behind_options_and_launchers() {
        let of = |words: &[&str]| script(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["python", "-X", "dev", "-u", "a.py", "-c", "x"]), Some("a.py".into()));
        assert_eq!(of(&["/usr/bin/python3.12", "a"]), Some("a".into()));
        assert_eq!(of(&["torchrun", "--nproc-per-node", "4", "a.py"]), Some("a.py".into()));
        assert_eq!(of(&["python", "-c", "print(1)"]), None);
        assert_eq!(of(&["./solver", "a.py"]), None);
        let words = ["python", "-c", "import torch; torch.cuda.MemPool()"].map(OsString::from);
        assert_eq!(unsupported(&words).map(|feature| feature.line), Some(1));
    }
}
