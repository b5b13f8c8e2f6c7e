//! Metrics of a synthetic account: the full text for Prometheus, the structure for OTLP.

use std::time::{Duration, UNIX_EPOCH};

use makeroom_core::Bytes;
use makeroom_holders::{
    Account, Device, DeviceMemory, Driver, Holder, Label, LatestFailure, PodName, Process, Recorder, Tally,
    Unlisted, View,
};

use super::{
    MOST_GROUPS, OomVerdict, RecordedPrograms, TextFormat, groups, otlp_json, otlp_logs_json, prometheus_text,
};

fn holder(pid: u32, bytes: Bytes) -> Holder {
    Holder { pid, bytes: Some(bytes), ..Holder::default() }
}

fn account() -> Account {
    let memory = DeviceMemory {
        total: Bytes::gib(8),
        reserved: Bytes::gib(1),
        used: Bytes::gib(3),
        free: Bytes::gib(4),
    };
    let device = Device {
        uuid: "GPU-1".into(),
        name: "Card \"one\"".into(),
        bus_id: "00000000:01:00.0".into(),
        minor: Some(2),
        memory: Some(memory),
        holders: vec![holder(7, Bytes::gib(1)), holder(8, Bytes::gib(1))],
        unlisted: Unlisted { bytes: 1 << 30, causes: Vec::new() },
        ..Device::default()
    };
    Account {
        taken: UNIX_EPOCH + Duration::from_secs(5),
        host: "node".into(),
        driver: Ok(Driver { version: "580.1".into(), cuda: Some(13000) }),
        devices: vec![device],
        users: Vec::new(),
        view: View::default(),
    }
}

fn tally() -> Tally {
    Tally::new(["leak", "fragmentation"])
}

/// No recorded programs.
fn none(tally: &Tally) -> RecordedPrograms<'_> {
    RecordedPrograms { recorders: &[], tally }
}

#[test]
fn prometheus_gets_dcgms_names_and_states_that_add_up() {
    let text = prometheus_text(&account(), Duration::from_millis(250), none(&tally()), TextFormat::Plain);
    let dcgm = "{gpu=\"0\",UUID=\"GPU-1\",pci_bus_id=\"00000000:01:00.0\",device=\"nvidia2\",modelName=\"Card \\\"one\\\"\",Hostname=\"node\"}";
    for line in [
        format!("DCGM_FI_DEV_FB_USED{dcgm} 3072.0"),
        format!("DCGM_FI_DEV_FB_FREE{dcgm} 4096.0"),
        "makeroom_memory_bytes{UUID=\"GPU-1\",Hostname=\"node\",state=\"held\"} 2147483648.0".to_owned(),
        "makeroom_memory_bytes{UUID=\"GPU-1\",Hostname=\"node\",state=\"unlisted\"} 1073741824.0".to_owned(),
        "makeroom_unlisted_bytes{UUID=\"GPU-1\",Hostname=\"node\",cause=\"unknown\"} 1073741824.0".to_owned(),
        "makeroom_holders{UUID=\"GPU-1\",Hostname=\"node\"} 2.0".to_owned(),
        "makeroom_up 1.0".to_owned(),
        "makeroom_look_seconds 0.25".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let states = text.lines().filter(|line| line.starts_with("makeroom_memory_bytes{"));
    let sum: f64 = states.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!((sum - Bytes::gib(8).get() as f64).abs() < 1.0);
    assert!(!text.contains("pid"), "no series per process");
    let held = "makeroom_held_bytes{UUID=\"GPU-1\",Hostname=\"node\",user=\"\",program=\"unseen\",container_id=\"\",pod_uid=\"\",namespace=\"\",pod=\"\",slurm_job=\"\",ray_actor=\"\"} 2147483648.0";
    assert!(text.lines().any(|line| line == held), "{text}");
}

/// A holder whose program has this name.
fn program(name: &str, bytes: Bytes) -> Holder {
    let process = Process { command: vec![name.into()], user_name: "root".into(), ..Process::default() };
    Holder { process: Some(process), ..holder(7, bytes) }
}

#[test]
fn many_holders_are_few_series() {
    let mut account = account();
    let device = &mut account.devices[0];
    device.holders = (0..100).map(|pid| holder(pid, Bytes::mib(1))).collect();
    assert_eq!(groups(device).len(), 1, "who cannot be told apart is one");
    device.holders = (0..100).map(|number| program(&format!("p{number}"), Bytes::mib(number))).collect();
    let groups = groups(device);
    assert_eq!(groups.len(), MOST_GROUPS + 1);
    assert_eq!((&*groups[0].0.program, groups[0].1), ("p99", Bytes::mib(99)));
    assert_eq!((&*groups[20].0.program, groups[20].1), ("other", Bytes::mib(79 * 80 / 2)));
}

#[test]
fn a_divided_card_is_counted_once() {
    let mut account = account();
    let card = &mut account.devices[0];
    let part = |index| Device {
        label: Label { card: 0, part: Some(index) },
        uuid: format!("MIG-{index}"),
        ..card.clone()
    };
    card.parts = vec![part(0), part(1)];
    let text = prometheus_text(&account, Duration::ZERO, none(&tally()), TextFormat::Plain);
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("makeroom_memory_bytes{UUID=\"GPU-1\""), 0, "{text}");
    assert_eq!(lines("makeroom_memory_bytes{UUID=\"MIG-"), 8, "{text}");
    assert_eq!(lines("DCGM_FI_DEV_FB_USED{"), 3, "as DCGM has them");
    assert_eq!(lines("makeroom_device_up{"), 3);
    let value = otlp_json(&account, none(&tally()));
    let limits = &value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["sum"]["dataPoints"];
    assert_eq!(limits.as_array().unwrap().len(), 2);
}

#[test]
fn otlp_has_the_conventions_names_and_numbers_as_text() {
    let value = otlp_json(&account(), none(&tally()));
    let metrics = &value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(metrics[0]["name"], "hw.gpu.memory.limit");
    assert_eq!(metrics[0]["sum"]["isMonotonic"], false);
    let point = &metrics[1]["sum"]["dataPoints"][0];
    assert_eq!(point["asInt"], Bytes::gib(4).get().to_string());
    assert_eq!(point["timeUnixNano"], "5000000000");
    let first = serde_json::json!({ "key": "hw.id", "value": { "stringValue": "GPU-1" } });
    assert_eq!(point["attributes"][0], first);
    assert_eq!(metrics[2]["gauge"]["dataPoints"][0]["asDouble"], 0.5);
    let mut account = account();
    account.devices[0].holders = vec![program("python", Bytes::gib(1))];
    let value = otlp_json(&account, none(&tally()));
    let point = &value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][3]["sum"]["dataPoints"][0];
    let keys: Vec<&str> = point["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attribute| attribute["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["hw.id", "process.owner", "process.executable.name"]);
}

/// A process in a pod, with a title that Ray or a hostile user chose.
fn in_pod(title: &str) -> Process {
    let pod_name = PodName { namespace: "research".into(), name: "train-0".into() };
    Process { command: vec![title.into()], user_name: "root".into(), pod_name, ..Process::default() }
}

#[test]
fn failures_count_from_zero_and_name_their_owner() {
    let now = account().taken;
    let mut tally = tally();
    let at = now - Duration::from_secs(2);
    for _ in 0..2 {
        tally.add(LatestFailure { process: in_pod("ray::Trainer.step"), cause: "leak", at });
    }
    tally.add(LatestFailure { process: in_pod("old"), cause: "leak", at: now - Duration::from_secs(5) });
    let recorder = Recorder { process: in_pod("ray::Trainer.step"), heartbeat: at };
    let recorders = [recorder.clone(), Recorder { heartbeat: at - Duration::from_secs(1), ..recorder }];
    let programs = RecordedPrograms { recorders: &recorders, tally: &tally };
    let text = prometheus_text(&account(), Duration::ZERO, programs, TextFormat::Plain);
    let owner = "Hostname=\"node\",user=\"root\",program=\"ray::Trainer\",container_id=\"\",pod_uid=\"\",namespace=\"research\",pod=\"train-0\",slurm_job=\"\",ray_actor=\"Trainer\"";
    for line in [
        "# TYPE makeroom_oom_total counter".to_owned(),
        "makeroom_oom_total{Hostname=\"node\",cause=\"fragmentation\"} 0".to_owned(),
        "makeroom_oom_total{Hostname=\"node\",cause=\"leak\"} 3".to_owned(),
        format!("makeroom_last_oom_timestamp_seconds{{{owner},cause=\"leak\"}} 3.0"),
        format!("makeroom_recorders{{{owner}}} 2.0"),
        format!("makeroom_recorder_heartbeat_timestamp_seconds{{{owner}}} 2.0"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let value = otlp_json(&account(), programs);
    let metrics = &value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(
        (&metrics[5]["name"], &metrics[6]["name"]),
        (&"makeroom.oom".into(), &"makeroom.recorders".into())
    );
    assert_eq!(metrics[5]["sum"]["dataPoints"][1]["asInt"], "3");
    assert_eq!(metrics[5]["sum"]["isMonotonic"], true);
    assert_eq!(metrics[6]["gauge"]["dataPoints"][0]["asInt"], "2");
}

/// Every process can choose a new title at any time, of any length and with any characters.
#[test]
fn hostile_names_are_escaped_short_and_few() {
    let mut tally = tally();
    let name = |number: u32| format!("{number}\"}} 1\n# \u{1b}[2J\\{}", "x".repeat(16 << 10));
    let processes: Vec<Process> = (0..100).map(|number| in_pod(&name(number))).collect();
    for process in &processes {
        tally.add(LatestFailure { process: process.clone(), cause: "leak", at: account().taken });
    }
    let recorders: Vec<Recorder> =
        processes.into_iter().map(|process| Recorder { process, heartbeat: account().taken }).collect();
    let text = prometheus_text(
        &account(),
        Duration::ZERO,
        RecordedPrograms { recorders: &recorders, tally: &tally },
        TextFormat::OpenMetrics,
    );
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("makeroom_oom_total{"), 2);
    assert_eq!(lines("makeroom_last_oom_timestamp_seconds{"), MOST_GROUPS);
    assert_eq!(lines("makeroom_recorders{"), MOST_GROUPS + 1);
    assert!(text.lines().all(|line| line.len() < 600), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("\n# [2J"), "{text}");
}

#[test]
fn a_verdict_is_a_log_record() {
    let at = account().taken;
    let verdict = OomVerdict {
        process: in_pod("ray::Trainer.step"),
        at,
        allocations: 2,
        cause: "leak",
        title: "A LEAK".into(),
        certainty: "likely".into(),
        summary: "Memory grows.".into(),
    };
    let value = otlp_logs_json("node", &[verdict]);
    let record = &value["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["timeUnixNano"], "5000000000");
    assert_eq!(record["severityText"], "ERROR");
    assert_eq!(record["body"]["stringValue"], "A LEAK: Memory grows.");
    let attributes = record["attributes"].as_array().unwrap();
    let value = |key: &str| {
        let found = attributes.iter().find(|attribute| attribute["key"] == key);
        found.unwrap_or_else(|| panic!("{key} is not in {record:#}"))["value"].clone()
    };
    assert_eq!(value("cause")["stringValue"], "leak");
    assert_eq!(value("k8s.pod.name")["stringValue"], "train-0");
    assert_eq!(value("makeroom.failed_allocations")["intValue"], "2");
}
