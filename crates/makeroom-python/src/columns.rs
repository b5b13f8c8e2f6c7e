//! Recordings as Arrow tables.
//!
//! Repeated strings (actions, sites and groups) are dictionary-encoded. The entries of a dictionary are unique: pandas rejects
//! others, and pyarrow would group by entry and not by text. Times are UTC in microseconds, or null if the recording has
//! none.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use makeroom_core::{Action, DeviceIndex, DeviceTrace, Lifetime, StackId, Trace, lifetimes};
use makeroom_explain::place_of;
use pyo3::PyResult;

use crate::groups::{self, Groups, Texts};
use crate::table::{Table, broken};

/// Names of actions, indexed by [`Action`], as in PyTorch's snapshots.
const ACTIONS: [&str; 9] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
];

/// Table of all events.
pub(crate) fn events(trace: &Trace) -> PyResult<Table> {
    let words = StringArray::from_iter_values(ACTIONS);
    let schema = schema(&[
        ("device", DataType::UInt32, false),
        ("event", DataType::UInt64, false),
        ("action", dictionary(DataType::UInt8), false),
        ("address", DataType::UInt64, true),
        ("size", DataType::UInt64, false),
        ("stream", DataType::UInt64, false),
        ("time", moment_type(), true),
        ("stack", DataType::UInt32, false),
        ("device_free", DataType::UInt64, true),
    ]);
    pieces(schema, trace, |device| {
        let events = &device.events;
        let actions: UInt8Array =
            events.actions().iter().map(|action| *action as u8).collect::<Vec<_>>().into();
        let is_place = |action| action != Action::OutOfMemory;
        vec![
            Arc::new(UInt32Array::from_value(device.device.0, events.len())),
            numbers(0..events.len() as u64),
            Arc::new(DictionaryArray::<UInt8Type>::new(actions, Arc::new(words.clone()))),
            Arc::new(
                events
                    .iter()
                    .map(|event| is_place(event.action).then_some(event.address.0))
                    .collect::<UInt64Array>(),
            ),
            numbers(events.iter().map(|event| event.size.get())),
            numbers(events.iter().map(|event| event.stream.0)),
            times(events.iter().map(|event| Some(event.time_us))),
            stacks(events.iter().map(|event| event.stack)),
            Arc::new(
                events
                    .iter()
                    .map(|event| event.device_free().map(makeroom_core::Bytes::get))
                    .collect::<UInt64Array>(),
            ),
        ]
    })
}

/// Which allocations to list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// All.
    Ever,
    /// Those live when live memory was highest.
    Peak,
    /// Those live after this event.
    After(usize),
}

/// Table of allocations, of one device or of all.
pub(crate) fn allocations(trace: &Trace, moment: Moment, device: Option<DeviceIndex>) -> PyResult<Table> {
    let sites = Sites::new(trace);
    let groups = Groups::new(trace, devices(trace, device));
    let mut fields = vec![
        ("device", DataType::UInt32, false),
        ("address", DataType::UInt64, false),
        ("size", DataType::UInt64, false),
        ("stream", DataType::UInt64, false),
        ("allocated_event", DataType::UInt64, true),
        ("allocated_at", moment_type(), true),
        ("freed_event", DataType::UInt64, true),
        ("freed_at", moment_type(), true),
        ("is_live", DataType::Boolean, false),
        ("site", dictionary(DataType::UInt32), true),
        ("stack", DataType::UInt32, false),
    ];
    let named = groups::COLUMNS.map(|(name, is_nullable)| (name, dictionary(DataType::UInt32), is_nullable));
    fields.extend(named);
    let schema = schema(&fields);
    pieces_of(schema, trace, device, |device| {
        let all = lifetimes(device);
        let listed = positions_at(&all, device.events.len(), moment);
        let rows: Vec<Lifetime> = listed.iter().filter_map(|&position| all.get(position).copied()).collect();
        let time = |event: Option<usize>| event.and_then(|event| Some(device.events.get(event)?.time_us));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_value(device.device.0, rows.len())),
            numbers(rows.iter().map(|row| row.address.0)),
            numbers(rows.iter().map(|row| row.size.get())),
            numbers(rows.iter().map(|row| row.stream.0)),
            positions(rows.iter().map(|row| row.born)),
            times(rows.iter().map(|row| time(row.born))),
            positions(rows.iter().map(|row| row.freed)),
            times(rows.iter().map(|row| time(row.freed))),
            Arc::new(rows.iter().map(|row| Some(row.freed.is_none())).collect::<BooleanArray>()),
            sites.column(rows.iter().map(|row| row.stack)),
            stacks(rows.iter().map(|row| row.stack)),
        ];
        columns.extend(groups.columns(device.device, &listed));
        columns
    })
}

/// The event after which the most memory was live, and the amount.
pub(crate) fn peak(device: &DeviceTrace) -> (usize, u64) {
    peak_of(&lifetimes(device), device.events.len())
}

fn peak_of(rows: &[Lifetime], events: usize) -> (usize, u64) {
    let mut changes = vec![0_i128; events];
    let mut live: i128 = 0;
    for row in rows {
        let size = i128::from(row.size.get());
        match row.born.and_then(|event| changes.get_mut(event)) {
            Some(change) => *change += size,
            None => live += size,
        }
        if let Some(change) = row.freed.and_then(|event| changes.get_mut(event)) {
            *change -= size;
        }
    }
    let (mut most, mut at) = (live, 0);
    for (event, change) in changes.into_iter().enumerate() {
        live += change;
        if live > most {
            (most, at) = (live, event);
        }
    }
    (at, u64::try_from(most).unwrap_or(u64::MAX))
}

/// Positions of the allocations to list.
fn positions_at(rows: &[Lifetime], events: usize, moment: Moment) -> Vec<usize> {
    let event = match moment {
        Moment::Ever => return (0..rows.len()).collect(),
        Moment::Peak => peak_of(rows, events).0,
        Moment::After(event) => event,
    };
    let is_live = |row: &Lifetime| {
        row.born.is_none_or(|born| born <= event) && row.freed.is_none_or(|freed| freed > event)
    };
    (0..rows.len()).filter(|&position| is_live(&rows[position])).collect()
}

/// The sites of all stacks, each text once. Many stacks share a site.
struct Sites {
    texts: Arc<StringArray>,
    /// The text of each stack; `None` if the stack names no place in the program.
    of_stack: Vec<Option<u32>>,
}

impl Sites {
    fn new(trace: &Trace) -> Self {
        let mut texts = Texts::default();
        let of_stack = trace.stacks.ids().map(|stack| Some(texts.key(&place_of(trace, stack)?))).collect();
        Self { texts: texts.finish(), of_stack }
    }

    fn column(&self, stacks: impl Iterator<Item = StackId>) -> ArrayRef {
        let keys = stacks.map(|stack| self.of_stack.get(stack.index()).copied().flatten()).collect();
        Arc::new(DictionaryArray::<UInt32Type>::new(keys, self.texts.clone()))
    }
}

/// Table of the allocator's segments at the end of the recording.
pub(crate) fn segments(trace: &Trace) -> PyResult<Table> {
    let schema = schema(&[
        ("device", DataType::UInt32, false),
        ("address", DataType::UInt64, false),
        ("size", DataType::UInt64, false),
        ("stream", DataType::UInt64, false),
        ("is_small", DataType::Boolean, false),
        ("is_expandable", DataType::Boolean, false),
        ("stack", DataType::UInt32, false),
    ]);
    pieces(schema, trace, |device| {
        let rows = &device.segments;
        vec![
            Arc::new(UInt32Array::from_value(device.device.0, rows.len())),
            numbers(rows.iter().map(|row| row.address.0)),
            numbers(rows.iter().map(|row| row.size.get())),
            numbers(rows.iter().map(|row| row.stream.0)),
            Arc::new(rows.iter().map(|row| Some(row.is_small)).collect::<BooleanArray>()),
            Arc::new(rows.iter().map(|row| Some(row.is_expandable)).collect::<BooleanArray>()),
            stacks(rows.iter().map(|row| row.stack)),
        ]
    })
}

/// Table of the frames of all stacks, innermost first.
pub(crate) fn frames(trace: &Trace) -> PyResult<Table> {
    let schema = schema(&[
        ("stack", DataType::UInt32, false),
        ("depth", DataType::UInt32, false),
        ("function", DataType::Utf8, false),
        ("file", DataType::Utf8, false),
        ("line", DataType::UInt32, false),
        ("library", DataType::Utf8, false),
    ]);
    let (mut stack_column, mut depths, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut texts: [StringBuilder; 3] = Default::default();
    for stack in trace.stacks.ids() {
        for (depth, &frame) in (0_u32..).zip(trace.stacks.frames_of(stack)) {
            let frame = trace.stacks.frame_at(frame);
            stack_column.push(stack.index() as u32);
            depths.push(depth);
            lines.push(frame.line);
            for (text, name) in texts.iter_mut().zip([frame.function, frame.file, frame.library]) {
                text.append_value(trace.stacks.name_text(name));
            }
        }
    }
    let [function, file, library] = texts.map(|mut text| Arc::new(text.finish()) as ArrayRef);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from(stack_column)),
        Arc::new(UInt32Array::from(depths)),
        function,
        file,
        Arc::new(UInt32Array::from(lines)),
        library,
    ];
    let piece = RecordBatch::try_new(schema.clone(), columns).map_err(|error| broken(&error))?;
    Ok(Table::new(schema, vec![piece]))
}

/// Builds a table with one record batch for each device.
fn pieces(
    schema: Arc<Schema>,
    trace: &Trace,
    columns: impl Fn(&DeviceTrace) -> Vec<ArrayRef>,
) -> PyResult<Table> {
    pieces_of(schema, trace, None, columns)
}

/// The same, for one device or for all.
fn pieces_of(
    schema: Arc<Schema>,
    trace: &Trace,
    device: Option<DeviceIndex>,
    columns: impl Fn(&DeviceTrace) -> Vec<ArrayRef>,
) -> PyResult<Table> {
    let pieces = devices(trace, device)
        .map(|device| RecordBatch::try_new(schema.clone(), columns(device)))
        .collect::<Result<_, _>>()
        .map_err(|error| broken(&error))?;
    Ok(Table::new(schema, pieces))
}

/// The devices to list: one or all.
fn devices(trace: &Trace, device: Option<DeviceIndex>) -> impl Iterator<Item = &DeviceTrace> {
    trace.devices.iter().filter(move |one| device.is_none_or(|device| device == one.device))
}

fn schema(columns: &[(&str, DataType, bool)]) -> Arc<Schema> {
    let field =
        |(name, kind, is_nullable): &(&str, DataType, bool)| Field::new(*name, kind.clone(), *is_nullable);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn dictionary(keys: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8))
}

fn moment_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn positions(values: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    Arc::new(values.map(|event| event.map(|event| event as u64)).collect::<UInt64Array>())
}

fn stacks(values: impl Iterator<Item = StackId>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values.map(|stack| stack.index() as u32)))
}

/// Times in microseconds; 0 and values that exceed `i64` are null.
fn times(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let told = values.map(|time| time.filter(|&time| time > 0).and_then(|time| i64::try_from(time).ok()));
    Arc::new(told.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}
