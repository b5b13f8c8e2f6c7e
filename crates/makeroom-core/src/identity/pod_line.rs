//! The pod that a line of a log belongs to, where the prefix is made of plain words:
//!
//! | program | prefix |
//! |---|---|
//! | `stern` | `train-worker-0 main ` (the pod and the container) |
//! | Docker Compose | `worker-0  \| ` |
//!
//! Any line can start with such words, so they count only if nearly all first lines of a log do, and if few names occur
//! often: `step-1 loss 2.7`, `step-2 loss 2.6` are not pods.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::LinePrefix;
use super::log_line::of_pod;

/// Fewest lines that show the names of pods.
const LEAST_LINES: usize = 4;
/// Length of the longest name of a pod, as Kubernetes defines it.
const LONGEST_NAME: usize = 253;

/// The names in front of the lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLabels {
    /// The containers of `stern`; `|` for Docker Compose.
    containers: OrderedSet<String>,
}

impl PodLabels {
    /// Finds out whether lines start with the names of pods, from the first lines of a log.
    pub fn find<'line>(lines: impl Iterator<Item = &'line str>) -> Option<Self> {
        let (mut labeled, mut others) = (0, 0);
        let mut pods: OrderedMap<&str, usize> = OrderedMap::new();
        let mut containers = OrderedSet::new();
        for line in lines.filter(|line| !line.trim().is_empty() && !is_report(line)) {
            match split(line) {
                Some((pod, container, _)) => {
                    labeled += 1;
                    *pods.entry(pod).or_default() += 1;
                    containers.insert(container.to_owned());
                }
                None => others += 1,
            }
        }
        let is_often = pods.len() * 2 <= labeled && containers.len() * 4 <= labeled.max(LEAST_LINES);
        (labeled >= LEAST_LINES && others * 10 <= labeled && is_often).then_some(Self { containers })
    }

    /// The prefix of a line; `None` if it has none.
    pub fn read<'line>(&self, line: &'line str) -> Option<LinePrefix<'line>> {
        let (pod, container, rest) = split(line).filter(|_| !is_report(line))?;
        let prefix = of_pod(pod, container, rest).filter(|_| self.containers.contains(container))?;
        match LinePrefix::read(prefix.rest, false).filter(|_| !prefix.rest.starts_with("  ")) {
            Some(inner) => Some(LinePrefix { job: inner.job.or(&prefix.job), ..inner }),
            None => Some(prefix),
        }
    }
}

/// Whether Docker Compose reports the end of a container: `worker-0 exited with code 1`.
fn is_report(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with("exited with code "))
}

/// The pod, the container and the text of a line.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    let (pod, rest) = line.split_once(' ')?;
    let is_pod = is_name(pod) && pod.contains('-') && pod.bytes().any(|byte| byte.is_ascii_digit());
    if !is_pod {
        return None;
    }
    // Docker Compose pads names to the same length.
    if let Some(text) = rest.trim_start_matches(' ').strip_prefix('|') {
        return Some((pod, "|", text));
    }
    let (container, text) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    is_name(container).then_some((pod, container, text))
}

/// Whether a word can be the name of a pod or a container.
fn is_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let starts_well = word.starts_with(|letter: char| letter.is_ascii_lowercase());
    starts_well && word.len() <= LONGEST_NAME && word.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stern_and_docker_compose_name_pods() {
        let stern = "train-worker-0 main step 1\ntrain-worker-1 main step 1\ntrain-worker-0 main [rank0]: oom\n\
            train-worker-1 main   File \"x\"\ntrain-worker-1 main";
        let labels = PodLabels::find(stern.lines());
        let read = |line| labels.as_ref().and_then(|labels: &PodLabels| labels.read(line));
        let found = read("train-worker-7 main [rank7]: oom").map(|prefix| (prefix.job, prefix.rest));
        let (job, rest) = found.unwrap_or_default();
        assert_eq!((job.rank, job.host.as_deref(), rest), (Some(7), Some("train-worker-7"), "oom"));
        let source = read("train-worker-1 main   File \"x\"").map(|prefix| prefix.rest);
        assert_eq!(source, Some("  File \"x\""));
        assert_eq!(read("train-worker-1 other x"), None, "another container");
        let compose = "w-0    | a\nw-10   | b\nw-0    | c\nw-10   | d\nw-0    | oom\n";
        let labels = PodLabels::find(compose.lines());
        let read = labels.as_ref().and_then(|labels| labels.read("w-10   | oom"));
        assert_eq!(read.map(|prefix| (prefix.job.pod, prefix.rest)), Some((Some("w-10".to_owned()), "oom")));
    }

    #[test]
    fn other_words_are_not_pods() {
        for text in [
            "step-1 loss 2.7\nstep-2 loss 2.6\nstep-3 loss 2.5\nstep-4 loss 2.4\n",
            "a b\n",
            "train-worker-0 main x\n",
            "x-1 a b\nx-1 b b\nx-1 c b\nx-1 d b\n",
            "",
        ] {
            assert_eq!(PodLabels::find(text.lines()), None, "{text}");
        }
    }
}
