//! Recordings as Arrow tables.
//!
//! Repeated strings (actions and sites) are dictionary-encoded. Times are UTC in microseconds, or null if the recording
//! has none.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use makeroom_core::{Action, DeviceTrace, StackId, Trace, lifetimes};
use makeroom_explain::place_of;
use pyo3::PyResult;

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
        ("action", dictionary(DataType::UInt8), false),
        ("address", DataType::UInt64, true),
        ("size", DataType::UInt64, false),
        ("stream", DataType::UInt64, false),
        ("time", moment(), true),
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

/// Table of all allocations.
pub(crate) fn allocations(trace: &Trace) -> PyResult<Table> {
    let places: Arc<StringArray> = Arc::new(StringArray::from_iter_values(
        trace.stacks.ids().map(|stack| place_of(trace, stack).unwrap_or_default()),
    ));
    let schema = schema(&[
        ("device", DataType::UInt32, false),
        ("address", DataType::UInt64, false),
        ("size", DataType::UInt64, false),
        ("stream", DataType::UInt64, false),
        ("allocated", moment(), true),
        ("freed", moment(), true),
        ("is_live", DataType::Boolean, false),
        ("site", dictionary(DataType::UInt32), false),
        ("stack", DataType::UInt32, false),
    ]);
    pieces(schema, trace, |device| {
        let rows = lifetimes(device);
        let time = |event: Option<usize>| event.and_then(|event| Some(device.events.get(event)?.time_us));
        let keys: ScalarBuffer<u32> = rows.iter().map(|row| row.stack.index() as u32).collect();
        vec![
            Arc::new(UInt32Array::from_value(device.device.0, rows.len())),
            numbers(rows.iter().map(|row| row.address.0)),
            numbers(rows.iter().map(|row| row.size.get())),
            numbers(rows.iter().map(|row| row.stream.0)),
            times(rows.iter().map(|row| time(row.born))),
            times(rows.iter().map(|row| time(row.freed))),
            Arc::new(rows.iter().map(|row| Some(row.freed.is_none())).collect::<BooleanArray>()),
            Arc::new(DictionaryArray::<UInt32Type>::new(UInt32Array::new(keys, None), places.clone())),
            stacks(rows.iter().map(|row| row.stack)),
        ]
    })
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
    let pieces = trace
        .devices
        .iter()
        .map(|device| RecordBatch::try_new(schema.clone(), columns(device)))
        .collect::<Result<_, _>>()
        .map_err(|error| broken(&error))?;
    Ok(Table::new(schema, pieces))
}

fn schema(columns: &[(&str, DataType, bool)]) -> Arc<Schema> {
    let field =
        |(name, kind, is_nullable): &(&str, DataType, bool)| Field::new(*name, kind.clone(), *is_nullable);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn dictionary(keys: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8))
}

fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn stacks(values: impl Iterator<Item = StackId>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values.map(|stack| stack.index() as u32)))
}

/// Times in microseconds; 0 and values that exceed `i64` are null.
fn times(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let told = values.map(|time| time.filter(|&time| time > 0).and_then(|time| i64::try_from(time).ok()));
    Arc::new(told.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}
