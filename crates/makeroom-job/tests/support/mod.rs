//! What the tests of logs share: messages as programs print them, and the answer for a set of files.

use makeroom_core::identity::identities_of_set;
use makeroom_job::{JobReport, LogReader, Rows, Source, answer};

pub(crate) const OUT_OF_MEMORY: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has \
    a total capacity of 39.38 GiB of which 1.15 GiB is free. Including non-PyTorch memory, this process has 38.22 GiB \
    memory in use. Of the allocated memory 36.90 GiB is allocated by PyTorch, and 410.00 MiB is reserved by PyTorch but \
    unallocated.";
pub(crate) const LOST: &str =
    "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.8]:9123";
pub(crate) const TRACEBACK: &str =
    "Traceback (most recent call last):\n  File \"/app/train.py\", line 88, in main\n    loss = f(x)\n";

/// The rows of files with these names and contents.
pub(crate) fn rows(files: &[(&str, &str)]) -> Rows {
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let mut rows = Rows::default();
    for ((name, text), identity) in files.iter().zip(identities_of_set(&names)) {
        let mut reader = LogReader::new(Source { name: (*name).to_owned(), identity, is_running: false });
        reader.push(text.as_bytes());
        rows.extend(reader.finish());
    }
    rows
}

/// The answer for these files.
pub(crate) fn job(files: &[(&str, &str)]) -> JobReport {
    answer(&rows(files))
}

/// The labels of the ranks to blame.
pub(crate) fn culprits(report: &JobReport) -> Vec<&str> {
    report.culprits.iter().map(|culprit| culprit.label.as_str()).collect()
}

/// A text whose lines start with a prefix.
pub(crate) fn prefixed(prefix: &str, text: &str) -> String {
    text.lines().map(|line| format!("{prefix}{line}\n")).collect()
}

/// An entry of torchrun's list.
pub(crate) fn listed(heading: &str, rank: u32, code: i32) -> String {
    format!(
        "{heading}\n[0]:\n  time      : x\n  host      : node7\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : \
         {code} (pid: {})\n  error_file: <N/A>\n",
        4000 + rank
    )
}
