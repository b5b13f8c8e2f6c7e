//! Pods and how their containers ended, in the output of `kubectl describe pod` and `kubectl get pods`:
//!
//! ```text
//! Name:             llm-worker-2
//! Namespace:        default
//! Containers:
//!   main:
//!     Last State:     Terminated
//!       Reason:       OOMKilled
//!       Exit Code:    137
//!
//! NAME           READY   STATUS      RESTARTS   AGE
//! llm-worker-2   0/1     OOMKilled   0          5m
//! ```
//!
//! A description ends at the first line without indentation that is not a field, and after its last field, the events.

/// Length of the longest name of a pod.
const LONGEST: usize = 253;
/// Length of the longest name of a field.
const LONGEST_FIELD: usize = 40;
/// States in the table that show an end, with the exit code that they stand for.
const STATES: [(&str, i32); 4] =
    [("OOMKilled", 137), ("Completed", 0), ("Error", 1), ("CrashLoopBackOff", 1)];

/// Follows a description of pods.
#[derive(Debug, Default)]
pub struct PodStatuses {
    /// The pod that a line may start to describe, or that is described.
    pod: Option<String>,
    is_ended: bool,
    section: Section,
}

/// What the next line can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// Anything, or the second line of a description.
    #[default]
    Other,
    Description,
    /// The end of a description.
    Events,
    Table,
}

/// A line of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLine {
    /// The pod that it is about.
    pub pod: String,
    /// The exit code of a container, if the line shows it.
    pub exit_code: Option<i32>,
}

impl PodStatuses {
    /// Reads a line. Returns the pod that it is about, if it describes one.
    pub fn read(&mut self, line: &str) -> Option<PodLine> {
        if let Some(name) = line.strip_prefix("Name:") {
            let name = name.trim();
            *self = Self { pod: is_name(name).then(|| name.to_owned()), ..Self::default() };
            return None;
        }
        if line.starts_with("NAME ") && line.contains(" READY ") && line.contains(" STATUS ") {
            *self = Self { section: Section::Table, ..Self::default() };
            return None;
        }
        if self.section == Section::Table {
            return self.row(line);
        }
        if self.section == Section::Other {
            // Other programs print names too.
            if self.pod.is_none() || !line.starts_with("Namespace:") {
                self.pod = None;
                return None;
            }
            self.section = Section::Description;
        }
        let is_indented = line.starts_with([' ', '\t']);
        let is_blank = line.trim().is_empty();
        if self.section == Section::Events && !is_indented || !is_blank && !is_indented && !is_field(line) {
            *self = Self::default();
            return None;
        }
        if line.starts_with("Events:") {
            self.section = Section::Events;
        }
        let (name, value) =
            line.split_once(':').map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
        if matches!(name, "State" | "Last State") {
            self.is_ended = value == "Terminated";
        }
        let exit_code = value.parse().ok().filter(|_| self.is_ended && name == "Exit Code");
        self.pod.clone().map(|pod| PodLine { pod, exit_code })
    }

    fn row(&mut self, line: &str) -> Option<PodLine> {
        let mut words = line.split_whitespace();
        let (pod, ready, state) = (words.next(), words.next(), words.next());
        let Some((pod, state)) =
            pod.zip(state).filter(|(pod, _)| is_name(pod) && ready.is_some_and(is_ready))
        else {
            self.section = Section::Other;
            return None;
        };
        let exit_code = STATES.iter().find(|(name, _)| *name == state).map(|(_, code)| *code);
        Some(PodLine { pod: pod.to_owned(), exit_code })
    }
}

/// `QoS Class:       Burstable`, `Containers:`.
fn is_field(line: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || b" -".contains(&byte);
    let is_name = name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && name.len() <= LONGEST_FIELD
        && name.bytes().all(is_letter);
    is_name && (value.trim().is_empty() || value.starts_with("  ") || value.starts_with('\t'))
}

/// `0/1`.
fn is_ready(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('/').is_some_and(|(ready, all)| is_number(ready) && is_number(all))
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str) -> Vec<(String, i32)> {
        let mut statuses = PodStatuses::default();
        text.lines()
            .filter_map(|line| statuses.read(line))
            .filter_map(|line| Some((line.pod, line.exit_code?)))
            .collect()
    }

    #[test]
    fn ends_of_containers_are_read() {
        let describe = "Name:             llm-2\nNamespace:        default\nContainers:\n  main:\n    State:          Running\n      \
            Started:      x\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n\n\n\
            Name:             llm-3\nNamespace:        default\n    State:          Terminated\n      Exit Code:    0\n";
        assert_eq!(ends(describe), [("llm-2".to_owned(), 137), ("llm-3".to_owned(), 0)]);
        let table = "NAME    READY   STATUS      RESTARTS   AGE\nllm-2   0/1     OOMKilled   0          5m\n\
            llm-3   1/1     Running     0          5m\nx\nllm-4   0/1     Error   0          5m\n";
        assert_eq!(ends(table), [("llm-2".to_owned(), 137)]);
    }

    #[test]
    fn a_description_ends_where_other_output_starts() {
        let start = "Name:             llm-2\nNamespace:        default\nContainers:\n  main:\n    \
            State:          Terminated\n";
        let exit = "      Exit Code:    137\n";
        let fields = "\nQoS Class:       Burstable\nStart Time:   Mon, 05 Jan 2026 10:14:11 +0000\n";
        assert_eq!(ends(&format!("{start}{fields}{exit}")).len(), 1);
        for other in [
            "step 1: loss 2.7\n",
            "Error: x\n",
            "Events:  <none>\n\n",
            "Events:\n  Type  Reason\nStatus:   x\n",
        ] {
            assert_eq!(ends(&format!("{start}{other}{exit}")), [], "{other}");
        }
        assert_eq!(ends(&format!("{start}Events:  <none>\n\n\n{start}{exit}")).len(), 1);
    }

    #[test]
    fn other_texts_describe_no_pod() {
        for text in [
            "Name: x\nAge: 3\n    Exit Code: 1\n",
            "Namespace: x\n",
            "NAME READY\n",
            "Name: É\nNamespace: x\n",
        ] {
            let mut statuses = PodStatuses::default();
            assert!(text.lines().all(|line| statuses.read(line).is_none()), "{text}");
        }
    }
}
