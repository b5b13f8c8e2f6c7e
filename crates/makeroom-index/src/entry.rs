//! The rows of one object as rows of the file: one per recording, with columns that queries need without a join.
//!
//! Derived columns (`job_name`, `ran_out`, `peak_bytes`, …) are written for queries and ignored when the rows are read
//! back. Lists that belong to the file (`stops`, `unread`) are in the row of its first recording. An object without a
//! recording has one row, in which `unreadable` has the reason.

use std::collections::BTreeMap;

use makeroom_job::{
    DeviceRow, End, FailureRow, RecordingKind, RecordingRow, Rows, SeriesRow, SiteRow, StepRow, StopRow,
    Unread,
};

use crate::cell::{Cell, Field, Kind, Shape, Value, next};
use crate::{IndexError, Object};

/// The rows of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The object.
    pub object: Object,
    /// Its rows.
    pub rows: Rows,
}

/// A time, as a timestamp.
struct Time(u64);

impl Cell for Time {
    fn shape() -> Shape {
        Shape::Leaf(Kind::Time)
    }

    fn put(&self) -> Value {
        Value::Number(self.0)
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        u64::take(value).map(Self)
    }
}

/// Lists the columns of a recording once: its type, its name and where the value comes from.
macro_rules! columns {
    ($($name:ident: $type:ty = $value:expr),+ $(,)?) => {
        /// The columns of a recording. All are empty in the row of an unreadable object.
        fn recording_fields() -> Vec<Field> {
            vec![$(Field::new::<Option<$type>>(stringify!($name))),+]
        }

        fn recording_values(row: &RecordingRow) -> Vec<Value> {
            vec![$({
                let value: fn(&RecordingRow) -> Option<$type> = $value;
                value(row).put()
            }),+]
        }

        /// The columns as they are read.
        struct ReadRecording { $($name: Option<$type>),+ }

        impl ReadRecording {
            fn take(values: &mut std::vec::IntoIter<Value>) -> Result<Self, IndexError> {
                Ok(Self { $($name: next(values, stringify!($name))?),+ })
            }
        }
    };
}

columns! {
    recording: String = |row| Some(row.recording.clone()),
    process: String = |row| row.process.clone(),
    kind: RecordingKind = |row| Some(row.kind),
    rank: u32 = |row| row.rank,
    local_rank: u32 = |row| row.local_rank,
    world_size: u32 = |row| row.world_size,
    host: String = |row| row.host.clone(),
    pod: String = |row| row.pod.clone(),
    node_rank: u32 = |row| row.node_rank,
    job: String = |row| row.job.clone(),
    attempt: u32 = |row| row.attempt,
    replica: String = |row| row.replica.clone(),
    run: String = |row| row.run.clone(),
    pid: u32 = |row| row.pid,
    parent_pid: u32 = |row| row.parent_pid,
    program: String = |row| row.program.clone(),
    model: String = |row| row.model.clone(),
    framework: String = |row| row.framework.clone(),
    launcher: String = |row| row.launcher.clone(),
    began: Time = |row| row.began_us.map(Time),
    ended: Time = |row| row.ended_us.map(Time),
    silence_us: u64 = |row| row.silence_us,
    ending: End = |row| Some(row.end),
    ended_line: u64 = |row| row.ended_line,
    torn_bytes: u64 = |row| Some(row.torn_bytes),
    events: u64 = |row| Some(row.events),
    is_incomplete: bool = |row| Some(row.is_incomplete),
    host_peak_bytes: u64 = |row| row.host_peak_bytes,
    cgroup_bytes: u64 = |row| row.cgroup_bytes,
    cgroup_limit_bytes: u64 = |row| row.cgroup_limit_bytes,
    is_first_failure: bool = |row| Some(row.is_first_failure),
    error: String = |row| row.error.clone(),
    cause: String = |row| Some(row.cause.clone()),
    certainty: String = |row| Some(row.certainty.clone()),
    summary: String = |row| Some(row.summary.clone()),
}

/// All columns of the file.
pub(crate) fn fields() -> Vec<Field> {
    let mut fields = vec![
        Field::new::<String>("source"),
        Field::new::<u64>("object_bytes"),
        Field::new::<String>("etag"),
        Field::new::<Option<Time>>("modified"),
        Field::new::<Option<String>>("unreadable"),
    ];
    fields.extend(recording_fields());
    fields.extend([
        Field::new::<Option<String>>("job_name"),
        Field::new::<Option<u64>>("duration_seconds"),
        Field::new::<Option<u64>>("gpus"),
        Field::new::<Option<bool>>("ran_out"),
        Field::new::<Option<u64>>("failed_bytes"),
        Field::new::<Option<String>>("failed_at"),
        Field::new::<Option<u64>>("peak_bytes"),
        Field::new::<Option<u64>>("total_bytes"),
        Field::new::<Option<u64>>("held_byte_seconds"),
        Field::new::<Option<u64>>("cached_byte_seconds"),
        Field::new::<Option<u64>>("fragmented_byte_seconds"),
        Field::new::<Option<String>>("top_line"),
        Field::new::<Option<u64>>("top_line_bytes"),
        Field::new::<Option<String>>("fix"),
        Field::new::<Option<String>>("fix_command"),
        Field::new::<Vec<DeviceRow>>("devices"),
        Field::new::<Vec<(String, Option<String>)>>("fixes"),
        Field::new::<Vec<FailureRow>>("failures"),
        Field::new::<Vec<SiteRow>>("sites"),
        Field::new::<Vec<StepRow>>("steps"),
        Field::new::<Vec<SeriesRow>>("series"),
        Field::new::<Vec<StopRow>>("stops"),
        Field::new::<Vec<Unread>>("unread"),
    ]);
    fields
}

/// The number of derived columns, between those of the recording and the lists.
const DERIVED: usize = 15;

/// The rows of the file for one object.
pub(crate) fn values(entry: &Entry) -> Vec<Vec<Value>> {
    let rows = &entry.rows;
    let failures = by_recording(&rows.failures, |row| &row.recording);
    let sites = by_recording(&rows.sites, |row| &row.recording);
    let steps = by_recording(&rows.steps, |row| &row.recording);
    let series = by_recording(&rows.series, |row| &row.recording);
    let mut recordings: Vec<Option<&RecordingRow>> = rows.recordings.iter().map(Some).collect();
    if recordings.is_empty() {
        recordings.push(None);
    }
    let mut written = Vec::with_capacity(recordings.len());
    for (index, recording) in recordings.into_iter().enumerate() {
        let mut row = vec![
            entry.object.source.put(),
            entry.object.size.put(),
            entry.object.etag.put(),
            entry.object.modified_us.map(Time).put(),
        ];
        let name = recording.map_or("", |recording| recording.recording.as_str());
        let of = (failures.get(name), sites.get(name));
        if let Some(recording) = recording {
            row.push(Value::Null);
            row.extend(recording_values(recording));
            row.extend(derived(
                recording,
                &entry.object,
                of.0.map_or(&[][..], Vec::as_slice),
                of.1.map_or(&[][..], Vec::as_slice),
            ));
            row.push(recording.devices.put());
            row.push(recording.fixes.put());
        } else {
            row.push(rows.unread.first().map(|unread| unread.reason.clone()).put());
            row.extend(vec![Value::Null; recording_fields().len() + DERIVED]);
            row.extend([Value::List(Vec::new()), Value::List(Vec::new())]);
        }
        row.extend([list(&failures, name), list(&sites, name), list(&steps, name), list(&series, name)]);
        let of_file = index == 0;
        row.push(if of_file { rows.stops.put() } else { Value::List(Vec::new()) });
        row.push(if of_file { rows.unread.put() } else { Value::List(Vec::new()) });
        written.push(row);
    }
    written
}

fn by_recording<T>(rows: &[T], name: impl Fn(&T) -> &String) -> BTreeMap<&str, Vec<&T>> {
    let mut found: BTreeMap<&str, Vec<&T>> = BTreeMap::new();
    for row in rows {
        found.entry(name(row).as_str()).or_default().push(row);
    }
    found
}

fn list<T: Cell>(rows: &BTreeMap<&str, Vec<&T>>, name: &str) -> Value {
    Value::List(rows.get(name).into_iter().flatten().map(|row| row.put()).collect())
}

/// The columns that queries need, from the rows of a recording.
fn derived(
    row: &RecordingRow,
    object: &Object,
    failures: &[&FailureRow],
    sites: &[&SiteRow],
) -> [Value; DERIVED] {
    let fatal = FailureRow::decisive(failures.iter().copied());
    let micros = row.ended_us.zip(row.began_us).map(|(ended, began)| ended.saturating_sub(began));
    let used = || row.devices.iter().filter(|device| device.is_used);
    let sum = |figure: fn(&DeviceRow) -> u64| used().map(figure).fold(0, u64::saturating_add);
    let top =
        sites.iter().max_by(|one, two| one.bytes.cmp(&two.bytes).then_with(|| two.place.cmp(&one.place)));
    let fix = row.fixes.first();
    [
        Some(job_name(row, object)).put(),
        micros.map(|micros| micros / 1_000_000).put(),
        Some(used().count() as u64).put(),
        Some(fatal.is_some()).put(),
        fatal.and_then(|failure| failure.requested_bytes).put(),
        fatal.and_then(|failure| failure.place.clone()).put(),
        used().map(|device| device.peak_bytes).max().put(),
        used().filter_map(|device| device.total_bytes).max().put(),
        Some(sum(|device| device.held_byte_seconds)).put(),
        Some(sum(|device| device.cached_byte_seconds)).put(),
        Some(sum(|device| device.fragmented_byte_seconds)).put(),
        top.map(|site| site.place.clone()).put(),
        top.map(|site| site.bytes).put(),
        fix.map(|fix| fix.0.clone()).put(),
        fix.and_then(|fix| fix.1.clone()).put(),
    ]
}

/// The job that a recording belongs to: its ID, else the `makeroom run` that recorded it, else the folder of the object.
#[must_use]
pub fn job_name(row: &RecordingRow, object: &Object) -> String {
    let folder = || object.source.rsplit_once('/').map_or_else(String::new, |(folder, _)| folder.to_owned());
    row.job.clone().or_else(|| row.run.clone()).unwrap_or_else(folder)
}

/// The rows of a file as the rows of its objects. Rows of one object are next to each other.
pub(crate) fn entries(
    rows: impl Iterator<Item = Result<Vec<Value>, IndexError>>,
) -> Result<Vec<Entry>, IndexError> {
    let mut entries: Vec<Entry> = Vec::new();
    for row in rows {
        let (object, rows) = read_row(row?)?;
        match entries.last_mut() {
            Some(last) if last.object == object => last.rows.extend(rows),
            _ => entries.push(Entry { object, rows }),
        }
    }
    Ok(entries)
}

fn read_row(row: Vec<Value>) -> Result<(Object, Rows), IndexError> {
    let mut values = row.into_iter();
    let time = |time: Option<Time>| time.map(|time| time.0);
    let object = Object {
        source: next(&mut values, "source")?,
        size: next(&mut values, "object_bytes")?,
        etag: next(&mut values, "etag")?,
        modified_us: time(next(&mut values, "modified")?),
    };
    let _: Option<String> = next(&mut values, "unreadable")?;
    let read = ReadRecording::take(&mut values)?;
    // Derived columns follow from the others.
    values.by_ref().take(DERIVED).for_each(drop);
    let devices: Vec<DeviceRow> = next(&mut values, "devices")?;
    let fixes: Vec<(String, Option<String>)> = next(&mut values, "fixes")?;
    let name = read.recording.clone().unwrap_or_default();
    let mut failures: Vec<FailureRow> = next(&mut values, "failures")?;
    let mut sites: Vec<SiteRow> = next(&mut values, "sites")?;
    let mut steps: Vec<StepRow> = next(&mut values, "steps")?;
    let mut series: Vec<SeriesRow> = next(&mut values, "series")?;
    for row in &mut failures {
        row.recording.clone_from(&name);
    }
    for row in &mut sites {
        row.recording.clone_from(&name);
    }
    for row in &mut steps {
        row.recording.clone_from(&name);
    }
    for row in &mut series {
        row.recording.clone_from(&name);
    }
    let mut rows = Rows {
        recordings: Vec::new(),
        failures,
        sites,
        steps,
        series,
        stops: next(&mut values, "stops")?,
        unread: next(&mut values, "unread")?,
    };
    if let Some(recording) = read.recording {
        let missing = |name: &str| IndexError::Value { wanted: "a value".to_owned() }.in_column(name);
        rows.recordings.push(RecordingRow {
            recording,
            process: read.process,
            kind: read.kind.ok_or_else(|| missing("kind"))?,
            rank: read.rank,
            local_rank: read.local_rank,
            world_size: read.world_size,
            host: read.host,
            pod: read.pod,
            node_rank: read.node_rank,
            job: read.job,
            attempt: read.attempt,
            replica: read.replica,
            run: read.run,
            pid: read.pid,
            parent_pid: read.parent_pid,
            program: read.program,
            model: read.model,
            framework: read.framework,
            launcher: read.launcher,
            began_us: time(read.began),
            ended_us: time(read.ended),
            silence_us: read.silence_us,
            end: read.ending.unwrap_or(End::Unknown),
            ended_line: read.ended_line,
            torn_bytes: read.torn_bytes.unwrap_or(0),
            events: read.events.unwrap_or(0),
            is_incomplete: read.is_incomplete.unwrap_or(false),
            devices,
            host_peak_bytes: read.host_peak_bytes,
            cgroup_bytes: read.cgroup_bytes,
            cgroup_limit_bytes: read.cgroup_limit_bytes,
            is_first_failure: read.is_first_failure.unwrap_or(false),
            error: read.error,
            cause: read.cause.ok_or_else(|| missing("cause"))?,
            certainty: read.certainty.unwrap_or_default(),
            summary: read.summary.unwrap_or_default(),
            fixes,
        });
    }
    Ok((object, rows))
}
