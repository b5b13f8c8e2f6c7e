//! The process that a line of a log belongs to, from the prefix that launchers add to the lines of all ranks.
//!
//! | launcher | prefix |
//! |---|---|
//! | PyTorch | `[rank3]: `, `[rank 3]` |
//! | torchrun | `[default3]:` (the local rank, after the name of the role), also in front of PyTorch's |
//! | `mpirun --tag-output` | `[1,3]<stderr>:` |
//! | `srun --label` | `3: `, `[3]:` |
//! | Ray | `(RayTrainWorker pid=4711, ip=10.0.0.4)`, `(train_fn rank=3 pid=4711)`, `(pid=4711)` |
//! | `kubectl logs --prefix` | `[pod/train-worker-0/main] ` |
//!
//! A prefix can be followed by one of another launcher, such as Ray's by PyTorch's, and loggers can put a time and a level
//! in front of it: see `line_header.rs`. Those of `stern` and of Docker Compose
//! are plain words: see `pod_line.rs`.

use super::JobIdentity;
use super::fields::JobField;
use super::line_header::texts_after;

/// A launcher's prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinePrefix<'line> {
    /// What it says about the process.
    pub job: JobIdentity,
    /// The PID.
    pub pid: Option<u32>,
    /// The line without it.
    pub rest: &'line str,
}

impl<'line> LinePrefix<'line> {
    /// Reads the prefix of a line. `None` if it has none. Bare numbers count only if the caller knows that lines are
    /// labeled: `12: ` also starts a line of a listing.
    pub fn read(line: &'line str, is_labeled: bool) -> Option<Self> {
        let outer = Self::outermost(line, is_labeled)?;
        if outer.job.rank.is_some() {
            return Some(outer);
        }
        match Self::outermost(outer.rest, false).filter(|_| !outer.rest.starts_with("  ")) {
            Some(inner) => {
                Some(Self { job: inner.job.or(&outer.job), pid: outer.pid.or(inner.pid), rest: inner.rest })
            }
            None => Some(outer),
        }
    }

    fn outermost(line: &'line str, is_labeled: bool) -> Option<Self> {
        // Of a name of any role, as in `[epoch3]: `, only the start of a line is a prefix.
        let is_sure = |text: &str, prefix: &Self| {
            prefix.job.rank.is_some()
                || prefix.pid.is_some()
                || text.starts_with("[default")
                || prefix.job.pod.is_some()
        };
        let of_text = |text: &'line str| Self::first(text, false).filter(|prefix| is_sure(text, prefix));
        Self::first(line, is_labeled)
            .or_else(|| Self::after_host(line))
            .or_else(|| texts_after(line).filter(|text| text.starts_with(['[', '('])).find_map(of_text))
    }

    /// `node7: [rank3]: x`, as `pdsh` and `clush` name the host.
    fn after_host(line: &'line str) -> Option<Self> {
        let (host, rest) = line.split_once(": ").filter(|(_, rest)| rest.starts_with("[rank"))?;
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let mut prefix = Self::first(rest, false).filter(|_| is_host)?;
        prefix.job.set(JobField::Host, host);
        Some(prefix)
    }

    fn first(line: &'line str, is_labeled: bool) -> Option<Self> {
        let line = line.trim_start();
        match line.as_bytes().first()? {
            b'[' => brackets(line.get(1..)?, is_labeled),
            b'(' => ray(line.get(1..)?),
            b'0'..=b'9' if is_labeled => {
                let (number, rest) = line.split_once(':')?;
                let is_label = rest.is_empty() || rest.starts_with(' ');
                of(JobField::Rank, number, unspaced(rest)).filter(|_| is_label)
            }
            _ => None,
        }
    }

    /// A line of a pod's description, which has no prefix.
    pub fn of_described(pod: &str, line: &'line str) -> Self {
        let prefix = of_pod(pod, "", "").unwrap_or_default();
        Self { rest: line, ..prefix }
    }

    /// Whether a line starts with a bare number, as all lines do under `srun --label`.
    pub fn is_label(line: &str) -> bool {
        let label = line.split_once(": ").map(|(label, _)| label.trim().trim_matches(['[', ']']));
        label.is_some_and(|label| label.parse::<u32>().is_ok())
    }
}

fn of<'line>(field: JobField, number: &str, rest: &'line str) -> Option<LinePrefix<'line>> {
    let mut job = JobIdentity::default();
    job.set(field, number).then_some(LinePrefix { job, pid: None, rest })
}

/// The text after a launcher's blank. Further blanks belong to the text: source lines of a traceback are indented.
fn unspaced(rest: &str) -> &str {
    rest.strip_prefix(' ').unwrap_or(rest)
}

/// The rest of a line that starts with `[`.
fn brackets(line: &str, is_labeled: bool) -> Option<LinePrefix<'_>> {
    let (inside, after) = line.split_once(']')?;
    if let Some(pod) = inside.strip_prefix("pod/") {
        let (pod, container) = pod.split_once('/')?;
        return of_pod(pod, container, after);
    }
    if let Some((_, rank)) = inside.split_once(',') {
        let rest = after.strip_prefix("<std")?;
        let (_, rest) = rest.split_once('>')?;
        return of(JobField::Rank, rank, rest.strip_prefix(':').unwrap_or(rest));
    }
    let number = inside.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let role = inside.get(..inside.len() - number.len()).unwrap_or_default();
    let rest = after.strip_prefix(':');
    match (role, rest) {
        ("", Some(rest)) if is_labeled => of(JobField::Rank, number, unspaced(rest)),
        ("rank" | "rank ", _) => of(JobField::Rank, number, unspaced(rest.unwrap_or(after))),
        ("", _) | (_, None) => None,
        (role, Some(rest)) => {
            let is_role = role.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_-".contains(&byte));
            of(JobField::LocalRank, number, rest).filter(|_| is_role)
        }
    }
}

/// The prefix of a pod. The name of a pod is that of its host, as its processes see it.
pub(super) fn of_pod<'line>(pod: &str, container: &str, rest: &'line str) -> Option<LinePrefix<'line>> {
    let mut job = JobIdentity::default();
    let is_pod = job.set(JobField::Host, pod) && job.set(JobField::Pod, pod);
    job.set(JobField::Container, container);
    is_pod.then(|| LinePrefix { job, pid: None, rest: unspaced(rest) })
}

/// The rest of a line that starts with `(`.
fn ray(line: &str) -> Option<LinePrefix<'_>> {
    // An actor can have a name of its own: `(RayTrainWorker(rank=3) pid=4711)`.
    let from = line.find("pid=")?;
    let (_, rest) = line.get(from..)?.split_once(')')?;
    let inside = line.get(..line.len() - rest.len() - 1)?;
    let is_plain = inside.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let words = inside.split([' ', ',', '(', ')']);
    let mut prefix = LinePrefix { rest: unspaced(rest), ..LinePrefix::default() };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match name {
            "rank" => _ = prefix.job.set(JobField::Rank, value),
            "ip" => _ = prefix.job.set(JobField::Host, value),
            "pid" => prefix.pid = value.parse().ok(),
            _ => {}
        }
    }
    (is_plain && prefix.pid.is_some()).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_each_launcher_is_read() {
        let rank = |line| LinePrefix::read(line, true).and_then(|prefix| prefix.job.rank);
        let local = |line| LinePrefix::read(line, true).and_then(|prefix| prefix.job.local_rank);
        assert_eq!(rank("[rank3]: Traceback (most recent call last):"), Some(3));
        assert_eq!(rank("[rank 3] out of memory"), Some(3));
        assert_eq!(rank("[1,12]<stderr>:RuntimeError"), Some(12));
        assert_eq!(rank("  7: out of memory"), Some(7));
        assert_eq!(rank("[7]: out of memory"), Some(7));
        assert_eq!(local("[default5]:RuntimeError"), Some(5));
        assert_eq!(local("[trainer0]:x"), Some(0));
        let both = LinePrefix::read("[default5]:[rank13]: oom", false);
        let both = both.map(|prefix| (prefix.job.rank, prefix.job.local_rank, prefix.rest));
        assert_eq!(both, Some((Some(13), Some(5), "oom")));
        assert_eq!(LinePrefix::read("[default5]:[1,2] x", false).map(|prefix| prefix.rest), Some("[1,2] x"));
        assert_eq!(LinePrefix::read("[rank3]: a: b", false).map(|prefix| prefix.rest), Some("a: b"));
        for line in ["2026-01-05T10:14:11Z [rank3]: x", "[2026-01-05 10:14:11] [INFO] [rank3]: x"] {
            let prefix = LinePrefix::read(line, false);
            assert_eq!(prefix.map(|prefix| (prefix.job.rank, prefix.rest)), Some((Some(3), "x")), "{line}");
        }
        let of_host =
            LinePrefix::read("node7: [rank3]: x", false).map(|prefix| (prefix.job.rank, prefix.job.host));
        assert_eq!(of_host, Some((Some(3), Some("node7".to_owned()))));
        assert_eq!(rank("lost the peer: [rank3]: x"), None);
        assert_eq!(rank("10:14:11 [epoch3]: x").or(local("10:14:11 [epoch3]: x")), None);
        assert_eq!(local("10:14:11 [default3]:x"), Some(3));
        for line in ["[rank3]:   x", "3:   x", "[1,3]<stderr>:  x", "(w pid=3)   x", "[pod/a/b]   x"] {
            assert_eq!(LinePrefix::read(line, true).map(|prefix| prefix.rest), Some("  x"), "{line}");
        }
    }

    #[test]
    fn kubectl_names_pods() {
        let read = |line| LinePrefix::read(line, false).map(|prefix| (prefix.job, prefix.rest));
        let (job, rest) = read("[pod/train-worker-0/main] [rank8]: oom").unwrap_or_default();
        assert_eq!((job.rank, job.pod.as_deref(), rest), (Some(8), Some("train-worker-0"), "oom"));
        assert_eq!(job.host.as_deref(), Some("train-worker-0"));
        let (job, rest) = read("[pod/train-worker-0/main] oom").unwrap_or_default();
        assert_eq!((job.rank, job.container.as_deref(), rest), (None, Some("main"), "oom"));
        assert_eq!((read("[pod/x] oom"), read("[pod//] oom")), (None, None));
    }

    #[test]
    fn ray_names_processes_and_hosts() {
        let read = |line| {
            let prefix = LinePrefix::read(line, false)?;
            Some((prefix.job.rank, prefix.job.host, prefix.pid?, prefix.rest))
        };
        let host = Some("10.0.0.4".to_owned());
        assert_eq!(read("(RayTrainWorker pid=4711, ip=10.0.0.4) oom"), Some((None, host, 4711, "oom")));
        assert_eq!(read("(train_fn rank=3 pid=4711) oom"), Some((Some(3), None, 4711, "oom")));
        assert_eq!(read("(Worker(rank=2) pid=1) (x) oom"), Some((Some(2), None, 1, "(x) oom")));
        assert_eq!(read("(pid=12) oom"), Some((None, None, 12, "oom")));
        for line in ["(see pid=x)", "(pid)", "(rank=3)", "(é pid=3)", "pid=3)"] {
            assert_eq!(LinePrefix::read(line, true), None, "{line}");
        }
    }

    #[test]
    fn other_lines_have_none() {
        for line in ["", "[", "[]:", "[rank]: x", "[2024-01-01 10:00:00]: x", "[1,2]: x", "é: x", "12:30 x"]
        {
            assert_eq!(LinePrefix::read(line, true), None, "{line}");
        }
        assert_eq!(LinePrefix::read("12: fn main", false), None);
        assert_eq!(LinePrefix::read("[3]: x", false), None);
        assert!(
            LinePrefix::is_label("3: x") && LinePrefix::is_label("[3]: x") && !LinePrefix::is_label("x: y")
        );
    }
}
