//! Recognizes files that this crate wrote, so that a later export may replace them.
//!
//! Other programs write the same formats. A file is recognized by the exporter that it names or, where the format has no
//! place for one, by a beginning that only this crate writes.

use crate::speedscope::SCHEMA;
use crate::table::TableKind;

/// How close to the end of a file its exporter is named.
const NAMED_WITHIN: usize = 1 << 10;

/// Whether a file with this beginning and this end, of a kilobyte or more each if it is as long, was written by
/// [`export`](crate::export), in any format.
pub fn is_export(start: &[u8], end: &[u8]) -> bool {
    let end = &end[end.len().saturating_sub(NAMED_WITHIN)..];
    let ends_with_name = |name: &[u8]| memchr::memmem::find(end, name).is_some();
    let is_perfetto = || {
        start.starts_with(crate::perfetto::START)
            && ends_with_name(b"],\"otherData\":{\"exporter\":\"makeroom ")
    };
    let is_speedscope =
        || start.starts_with(format!("{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"makeroom ").as_bytes());
    // A pool's snapshot is written by the same code, but it is original data and has no exporter.
    let is_snapshot = || {
        let rest = start.strip_prefix(b"\x80\x04}(\x8c\x08exporter\x94");
        rest.is_some_and(|rest| memchr::memmem::find(&rest[..rest.len().min(24)], b"makeroom ").is_some())
    };
    let is_parquet = || start.starts_with(b"PAR1") && end.ends_with(b"PAR1") && ends_with_name(b"makeroom ");
    let is_csv = |kind: TableKind| {
        let names: Vec<&str> = kind.columns().iter().map(|column| column.name).collect();
        start.strip_prefix(names.join(",").as_bytes()).is_some_and(|rest| rest.starts_with(b"\n"))
    };
    is_perfetto()
        || is_speedscope()
        || is_snapshot()
        || is_parquet()
        || [TableKind::Events, TableKind::Allocations].into_iter().any(is_csv)
}
