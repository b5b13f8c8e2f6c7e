//! Runs the command that answers a call, with bounds on its time and its output.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::tools::Line;

/// The longest that a command may take.
const DEADLINE: Duration = Duration::from_secs(300);
/// More output than an assistant could read.
const MOST_OUTPUT: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{command} could not be started: {error}")]
    Start { command: String, error: io::Error },
    #[error("makeroom did not finish within {} s", DEADLINE.as_secs())]
    Late,
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What the command printed to stderr.
    #[error("{0}")]
    Command(String),
    #[error("the answer is larger than 16 MiB")]
    Large,
}

/// Runs the command. Returns its standard output.
pub(crate) async fn run(command: &Path, line: &Line) -> Result<String, Failure> {
    match tokio::time::timeout(DEADLINE, finish(command, line)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Late),
    }
}

async fn finish(command: &Path, line: &Line) -> Result<String, Failure> {
    let input = if line.input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(command)
        .args(&line.arguments)
        .env("NO_COLOR", "1")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Kill the child process when the call times out or is canceled.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::Start { command: command.display().to_string(), error })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let (Some(mut stdin), Some(text)) = (stdin, &line.input) {
            // A command that has read enough closes its input.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let (output, errors, ()) = tokio::join!(read(stdout), read(stderr), write);
    let (output, errors) = (output?, errors?);
    let status = child.wait().await?;
    if output.len() as u64 > MOST_OUTPUT {
        return Err(Failure::Large);
    }
    if !status.success() {
        let said = errors.trim();
        return Err(Failure::Command(if said.is_empty() { status.to_string() } else { said.to_owned() }));
    }
    Ok(output)
}

/// Everything that a stream has, or a little more than the bound.
async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MOST_OUTPUT + 1).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
