//! Verdicts as OTLP log records, in the JSON that collectors accept at `/v1/logs`.
//!
//! A record contains the verdict and the labels of the process, but neither its command line nor call stacks: those are in
//! the recording, which belongs to the user that made it.

use std::time::SystemTime;

use makeroom_holders::Process;
use serde_json::{Value, json};

use super::Group;
use super::otlp::{attributes, nanoseconds, resource, scope};

/// OTLP's number for errors.
const ERROR: u8 = 17;

/// Why a recorded program ran out of memory.
#[derive(Clone, Debug)]
pub struct OomVerdict {
    /// The process.
    pub process: Process,
    /// When.
    pub at: SystemTime,
    /// Failed allocations.
    pub allocations: u64,
    /// The cause, as in `why --json`, or `unexplained`.
    pub cause: &'static str,
    /// The cause as people read it.
    pub title: String,
    /// How certain the cause is.
    pub certainty: String,
    /// The verdict in a sentence or two.
    pub summary: String,
}

/// The verdicts as one export request.
pub fn otlp_logs_json(host: &str, verdicts: &[OomVerdict]) -> Value {
    let records: Vec<Value> = verdicts.iter().map(record).collect();
    json!({
        "resourceLogs": [{
            "resource": resource(host),
            "scopeLogs": [{ "scope": scope(), "logRecords": records }],
        }],
    })
}

fn record(verdict: &OomVerdict) -> Value {
    let group = Group::of_process(&verdict.process);
    let labels: Vec<(&str, &str)> = [("cause", verdict.cause), ("certainty", &verdict.certainty)]
        .into_iter()
        .chain(group.attributes())
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let mut labels = attributes(&labels);
    if let Some(labels) = labels.as_array_mut() {
        let count = json!({ "intValue": verdict.allocations.to_string() });
        labels.push(json!({ "key": "makeroom.failed_allocations", "value": count }));
    }
    let body = format!("{}: {}", verdict.title, verdict.summary);
    json!({
        "timeUnixNano": nanoseconds(verdict.at),
        "observedTimeUnixNano": nanoseconds(verdict.at),
        "severityNumber": ERROR,
        "severityText": "ERROR",
        "eventName": "makeroom.oom",
        "body": { "stringValue": body },
        "attributes": labels,
    })
}
