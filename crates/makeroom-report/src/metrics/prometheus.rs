//! The account in Prometheus's text format.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use makeroom_core::Bytes;
use makeroom_holders::{Account, Device};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{RecordedPrograms, devices, groups, latest_failures, recorder_groups};

/// The counter of failures. `OpenMetrics` adds `_total` to the name of a counter.
const FAILURES: &str = "makeroom_oom";

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// The text formats that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The older format, which all versions read.
    Plain,
    /// `OpenMetrics`.
    OpenMetrics,
}

/// The account in a text format, with the time it took, and the recorded programs.
pub fn prometheus_text(
    account: &Account,
    took: Duration,
    recorded: RecordedPrograms<'_>,
    format: TextFormat,
) -> String {
    let mut registry = Registry::default();
    add_recorded(&mut registry, account, recorded);
    let mut gauges = |name: &str, help: &str| {
        let gauges = Gauges::default();
        registry.register(name, help, gauges.clone());
        gauges
    };
    // DCGM's unit is MiB.
    let total = gauges("DCGM_FI_DEV_FB_TOTAL", "Total framebuffer memory of the GPU (in MiB)");
    let free = gauges("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB)");
    let used = gauges("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB)");
    let reserved = gauges("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved by the driver (in MiB)");
    let memory = gauges("makeroom_memory_bytes", "GPU memory by state; the states add up to the total");
    let held = gauges("makeroom_held_bytes", "GPU memory by owner");
    let holders = gauges("makeroom_holders", "Number of processes that the driver lists on the GPU");
    let idle = gauges("makeroom_idle_context_bytes", "GPU memory of CUDA contexts without allocations");
    let unlisted =
        gauges("makeroom_unlisted_bytes", "GPU memory without a listed owner, by its most likely cause");
    let responds = gauges("makeroom_device_up", "1 if the GPU responds");
    for (name, help, value) in [
        ("makeroom_up", "1 if the driver responds", f64::from(u8::from(account.driver.is_ok()))),
        ("makeroom_look_seconds", "Seconds to read the GPUs", took.as_secs_f64()),
    ] {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
    for device in devices(account) {
        let names = dcgm_labels(account, device);
        let own = [("UUID", device.uuid.clone()), ("Hostname", account.host.clone())];
        let with = |more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            own.iter().cloned().chain(more).collect()
        };
        responds.get_or_create(&with(&[])).set(f64::from(u8::from(device.memory.is_some())));
        let Some(figures) = device.memory else { continue };
        for (gauges, bytes) in [
            (&total, figures.total),
            (&free, figures.free),
            (&used, figures.used),
            (&reserved, figures.reserved),
        ] {
            gauges.get_or_create(&names).set(bytes.get() as f64 / f64::from(1 << 20));
        }
        if !device.parts.is_empty() {
            // Its MIG instances have these, and sums must not count memory twice.
            continue;
        }
        let states = [
            ("free", figures.free.get() as f64),
            ("reserved", figures.reserved.get() as f64),
            ("held", device.held().get() as f64),
            ("unlisted", device.unlisted.bytes as f64),
        ];
        for (state, bytes) in states {
            memory.get_or_create(&with(&[("state", state)])).set(bytes);
        }
        for (group, bytes) in groups(device) {
            held.get_or_create(&with(&group.labels())).set(bytes.get() as f64);
        }
        holders.get_or_create(&with(&[])).set(device.holders.len() as f64);
        let idle_bytes: Bytes = device.idle.iter().map(|group| group.bytes).sum();
        idle.get_or_create(&with(&[])).set(idle_bytes.get() as f64);
        if device.unlisted.matters() {
            let cause = device.unlisted.causes.first().map_or("unknown", |cause| cause.cause.name());
            unlisted.get_or_create(&with(&[("cause", cause)])).set(device.unlisted.bytes as f64);
        }
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    if format == TextFormat::Plain {
        // In OpenMetrics, the comments on a counter lack the suffix of its name.
        for comment in ["# HELP", "# TYPE"] {
            text =
                text.replacen(&format!("{comment} {FAILURES} "), &format!("{comment} {FAILURES}_total "), 1);
        }
    }
    text
}

/// The recorded programs, and those that ran out of memory.
fn add_recorded(registry: &mut Registry, account: &Account, recorded: RecordedPrograms<'_>) {
    let host = ("Hostname", account.host.clone());
    let with = |labels: &[(&'static str, &str)]| -> Labels {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned()));
        std::iter::once(host.clone()).chain(labels).collect()
    };
    let failures = Family::<Labels, Counter>::default();
    for (&cause, &count) in &recorded.tally.counts {
        failures.get_or_create(&with(&[("cause", cause)])).inc_by(count);
    }
    registry.register(FAILURES, "Recorded programs that ran out of memory, by cause", failures);
    let latest = Gauges::default();
    for (group, cause, at) in latest_failures(recorded.tally, account.taken) {
        let labels: Vec<_> = group.labels().into_iter().chain([("cause", cause)]).collect();
        latest.get_or_create(&with(&labels)).set(seconds(at));
    }
    registry.register(
        "makeroom_last_oom_timestamp_seconds",
        "When a recorded program last ran out of memory, by owner",
        latest,
    );
    let (recorders, heartbeats) = (Gauges::default(), Gauges::default());
    for (group, count, heartbeat) in recorder_groups(recorded.recorders) {
        recorders.get_or_create(&with(&group.labels())).set(count as f64);
        heartbeats.get_or_create(&with(&group.labels())).set(seconds(heartbeat));
    }
    registry.register("makeroom_recorders", "Number of recorded processes, by owner", recorders);
    registry.register(
        "makeroom_recorder_heartbeat_timestamp_seconds",
        "When the recorder that has been silent longest last wrote, by owner",
        heartbeats,
    );
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The labels of DCGM's exporter.
fn dcgm_labels(account: &Account, device: &Device) -> Labels {
    let minor = device.minor.unwrap_or(device.label.card);
    let mut labels = vec![
        ("gpu", device.label.card.to_string()),
        ("UUID", device.uuid.clone()),
        ("pci_bus_id", device.bus_id.clone()),
        ("device", format!("nvidia{minor}")),
        ("modelName", device.name.clone()),
        ("Hostname", account.host.clone()),
    ];
    if let Some(part) = device.label.part {
        labels.push(("GPU_I_ID", part.to_string()));
    }
    labels
}
