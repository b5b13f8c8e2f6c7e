//! The rows of `makeroom-job` as columns: which field is which column.
//!
//! Columns are a contract: they are never renamed, and new ones are optional or lists, so that files of an older version
//! can be read.

use makeroom_job::{
    Collective, DeviceRow, End, FailureKind, FailureRow, KilledProcess, RecordingKind, SeriesRow, SiteRow,
    StepRow, StopReason, StopRow, Unread,
};

use crate::IndexError;
use crate::cell::{Cell, Field, Shape, Value, fields, mismatch, next};

/// Implements [`Cell`] for a struct: `field` is a column of the same name, `field as "column"` has another name, and
/// fields after `without` are not written and are empty when read.
macro_rules! record {
    ($type:ty { $($field:ident $(as $column:literal)?),+ $(,)? } $(without $absent:ident)?) => {
        impl Cell for $type {
            fn shape() -> Shape {
                Shape::Struct(vec![$(Field::of(record!(@name $field $($column)?), |row: &$type| &row.$field)),+])
            }

            fn put(&self) -> Value {
                Value::Struct(vec![$(self.$field.put()),+])
            }

            fn take(value: Value) -> Result<Self, IndexError> {
                let mut values = fields(value)?;
                Ok(Self {
                    $($field: next(&mut values, record!(@name $field $($column)?))?,)+
                    $($absent: Default::default(),)?
                })
            }
        }
    };
    (@name $field:ident $column:literal) => { $column };
    (@name $field:ident) => { stringify!($field) };
}

/// Implements [`Cell`] for an enum without data, as its name in `--json`.
macro_rules! names {
    ($type:ty { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl Cell for $type {
            fn shape() -> Shape {
                String::shape()
            }

            fn put(&self) -> Value {
                Value::Text(match self { $(Self::$variant => $name),+ }.to_owned())
            }

            fn take(value: Value) -> Result<Self, IndexError> {
                match String::take(value)?.as_str() {
                    $($name => Ok(Self::$variant),)+
                    other => mismatch(&format!("a value that this version knows instead of {other:?}")),
                }
            }
        }
    };
}

/// Implements [`Cell`] for a pair, as a struct.
macro_rules! pair {
    ($one:ty, $two:ty, $first:literal, $second:literal) => {
        impl Cell for ($one, $two) {
            fn shape() -> Shape {
                Shape::Struct(vec![Field::new::<$one>($first), Field::new::<$two>($second)])
            }

            fn put(&self) -> Value {
                Value::Struct(vec![self.0.put(), self.1.put()])
            }

            fn take(value: Value) -> Result<Self, IndexError> {
                let mut values = fields(value)?;
                Ok((next(&mut values, $first)?, next(&mut values, $second)?))
            }
        }
    };
}

record!(DeviceRow {
    device,
    uuid,
    name,
    total_bytes,
    is_used,
    peak_bytes,
    last_bytes,
    overhead_bytes,
    held_byte_seconds,
    cached_byte_seconds,
    fragmented_byte_seconds,
});
record!(FailureRow {
    kind,
    time_us,
    device,
    requested_bytes,
    free_bytes,
    limit_bytes,
    held_bytes,
    place,
    later_allocations,
    line,
    others,
    pid,
    killed,
    collective,
} without recording);
record!(KilledProcess { program, cgroup, host });
record!(Collective { group, number, operation, elements });
record!(SiteRow { device, place, bytes, blocks } without recording);
record!(StepRow { device, step, peak_bytes, floor_bytes } without recording);
record!(SeriesRow { device, elapsed_us, held_bytes, peak_bytes } without recording);
record!(StopRow { file, reason, line });
record!(Unread { file, reason });

names!(RecordingKind {
    Room = "room",
    TorchSnapshot = "torch-snapshot",
    RmmLog = "rmm-log",
    JaxProfile = "jax-profile",
    Log = "log",
});
names!(FailureKind {
    DeviceMemory = "device_memory",
    Context = "context",
    PinnedMemory = "pinned_memory",
    HostMemory = "host_memory",
    CollectiveTimeout = "collective_timeout",
    PeerLost = "peer_lost",
    Terminated = "terminated",
    Killed = "killed",
    Died = "died",
    ExitCode = "exit_code",
    Other = "other",
});
names!(StopReason {
    TimeLimit = "time_limit",
    Preemption = "preemption",
    NodeFailure = "node_failure",
    Requeue = "requeue",
    User = "user",
    Unknown = "unknown",
});

pair!(String, Option<String>, "action", "command");
pair!(u32, u64, "pid", "bytes");
pair!(u64, u64, "input", "output");

impl Cell for End {
    fn shape() -> Shape {
        String::shape()
    }

    fn put(&self) -> Value {
        Value::Text(match self {
            Self::Exited(status) => format!("exited {status}"),
            Self::Signaled(signal) => format!("signaled {signal}"),
            Self::Killed => "killed".to_owned(),
            Self::Running => "running".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        })
    }

    fn take(value: Value) -> Result<Self, IndexError> {
        let text = String::take(value)?;
        let number = |prefix: &str| text.strip_prefix(prefix).and_then(|number| number.parse().ok());
        match text.as_str() {
            "killed" => Ok(Self::Killed),
            "running" => Ok(Self::Running),
            "unknown" => Ok(Self::Unknown),
            _ => match (number("exited "), number("signaled ")) {
                (Some(status), _) => Ok(Self::Exited(status)),
                (_, Some(signal)) => Ok(Self::Signaled(signal)),
                _ => mismatch("the end of a process"),
            },
        }
    }
}
