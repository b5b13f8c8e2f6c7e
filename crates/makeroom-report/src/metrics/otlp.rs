//! The account as OTLP metrics in JSON, which every collector accepts at `/v1/metrics`.
//!
//! Names and attributes are those of the semantic conventions for hardware: `hw.gpu.memory.limit`, `.usage`,
//! `.utilization`, with the GPU's UUID as `hw.id`. The SDK is not used: the payload is one nested object, and the SDK
//! would add a runtime of readers and exporters.

use std::time::{SystemTime, UNIX_EPOCH};

use makeroom_holders::{Account, Device};
use serde_json::{Value, json};

use super::{RecordedPrograms, groups, recorder_groups};

/// Aggregation temporality: sums are totals, not deltas.
const CUMULATIVE: u8 = 2;

/// The account and the recorded programs as one export request.
pub fn otlp_json(account: &Account, recorded: RecordedPrograms<'_>) -> Value {
    let time = nanoseconds(account.taken);
    let driver = account.driver.as_ref().map_or("", |driver| driver.version.as_str());
    let mut points = Points { time, ..Points::default() };
    // MIG instances instead of their GPU, so that sums do not count memory twice.
    for device in account.devices.iter().flat_map(Device::usable) {
        points.add(device, driver);
    }
    let failures = recorded.tally.counts.iter().map(|(cause, count)| {
        json!({
            "attributes": attributes(&[("cause", cause)]), "startTimeUnixNano": nanoseconds(recorded.tally.since),
            "timeUnixNano": points.time, "asInt": count.to_string(),
        })
    });
    let recorders = recorder_groups(recorded.recorders).into_iter().map(|(group, count, _)| {
        let labels =
            group.attributes().into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>();
        points.point(&labels, i64::try_from(count).unwrap_or(i64::MAX))
    });
    let counts = [
        json!({
            "name": "makeroom.oom", "description": "Recorded programs that ran out of memory", "unit": "{program}",
            "sum": {
                "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": failures.collect::<Vec<_>>(),
            },
        }),
        json!({
            "name": "makeroom.recorders", "description": "Recorded processes", "unit": "{process}",
            "gauge": { "dataPoints": recorders.collect::<Vec<_>>() },
        }),
    ];
    let metrics = [
        sum("hw.gpu.memory.limit", "Size of the GPU memory", &points.limit),
        sum("hw.gpu.memory.usage", "GPU memory used", &points.usage),
        gauge("hw.gpu.memory.utilization", "Fraction of GPU memory used", &points.utilization),
        sum("makeroom.memory.held", "GPU memory by owner", &points.held),
        sum("makeroom.memory.unlisted", "GPU memory without a listed owner", &points.unlisted),
    ];
    let metrics: Vec<Value> = metrics.into_iter().chain(counts).collect();
    json!({
        "resourceMetrics": [{
            "resource": resource(&account.host),
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }],
    })
}

/// The program that sends, and its host.
pub(super) fn resource(host: &str) -> Value {
    json!({ "attributes": attributes(&[("service.name", "makeroom"), ("host.name", host)]) })
}

pub(super) fn scope() -> Value {
    json!({ "name": "makeroom", "version": env!("CARGO_PKG_VERSION") })
}

/// Nanoseconds since 1970. OTLP encodes 64-bit integers as strings in JSON.
pub(super) fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

/// The data points of each metric.
#[derive(Default)]
struct Points {
    time: String,
    limit: Vec<Value>,
    usage: Vec<Value>,
    utilization: Vec<Value>,
    held: Vec<Value>,
    unlisted: Vec<Value>,
}

impl Points {
    fn add(&mut self, device: &Device, driver: &str) {
        let Some(memory) = device.memory else { return };
        let label = device.label.to_string();
        let own = [
            ("hw.id", device.uuid.as_str()),
            ("hw.name", &label),
            ("hw.model", &device.name),
            ("hw.vendor", "NVIDIA"),
            ("hw.driver_version", driver),
            ("hw.type", "gpu"),
        ];
        self.limit.push(self.point(&own, memory.total.get().cast_signed()));
        let usage = (memory.used + memory.reserved).get().cast_signed();
        self.usage.push(self.point(&own, usage));
        let share = (memory.used + memory.reserved).share_of(memory.total);
        self.utilization.push(json!({
            "attributes": attributes(&own), "timeUnixNano": self.time, "asDouble": share,
        }));
        for (group, bytes) in groups(device) {
            let labels: Vec<(&str, &str)> = [("hw.id", device.uuid.as_str())]
                .into_iter()
                .chain(group.attributes().into_iter().filter(|(_, value)| !value.is_empty()))
                .collect();
            self.held.push(self.point(&labels, bytes.get().cast_signed()));
        }
        let cause = device.unlisted.causes.first().map_or("", |cause| cause.cause.name());
        let labels = [("hw.id", device.uuid.as_str()), ("cause", cause)];
        self.unlisted.push(self.point(&labels, device.unlisted.bytes));
    }

    fn point(&self, labels: &[(&str, &str)], value: i64) -> Value {
        json!({ "attributes": attributes(labels), "timeUnixNano": self.time, "asInt": value.to_string() })
    }
}

fn sum(name: &str, description: &str, points: &[Value]) -> Value {
    json!({
        "name": name, "description": description, "unit": "By",
        "sum": { "aggregationTemporality": CUMULATIVE, "isMonotonic": false, "dataPoints": points },
    })
}

fn gauge(name: &str, description: &str, points: &[Value]) -> Value {
    json!({ "name": name, "description": description, "unit": "1", "gauge": { "dataPoints": points } })
}

pub(super) fn attributes(labels: &[(&str, &str)]) -> Value {
    labels.iter().map(|(name, value)| json!({ "key": name, "value": { "stringValue": value } })).collect()
}
