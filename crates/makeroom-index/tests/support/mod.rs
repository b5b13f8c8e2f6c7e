//! Made-up rows: every field takes every kind of value that it can have, including empty and very large ones.

use makeroom_index::{Entry, Object};
use makeroom_job::{
    Collective, DeviceRow, End, FailureKind, FailureRow, KilledProcess, RecordingKind, RecordingRow, Rows,
    SeriesRow, SiteRow, StepRow, StopReason, StopRow, Unread,
};

/// A sequence of random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Small numbers, and the largest that a file can have.
    fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => i64::MAX as u64,
            _ => self.next() >> self.below(63).max(1),
        }
    }

    fn small(&mut self) -> u32 {
        self.next() as u32
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 6] = ["", "train.py:25", "größer \u{1f389}", "a\0b", "line\nline", "x"];
        let index = self.below(TEXTS.len() as u64) as usize;
        TEXTS[index].repeat(1 + self.below(3) as usize)
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn end(&mut self) -> End {
        let code = self.small();
        self.one_of(&[End::Exited(code), End::Signaled(code), End::Killed, End::Running, End::Unknown])
    }

    fn device(&mut self) -> DeviceRow {
        DeviceRow {
            device: self.small(),
            uuid: self.maybe(Self::text),
            name: self.maybe(Self::text),
            total_bytes: self.maybe(Self::number),
            is_used: self.below(2) == 0,
            peak_bytes: self.number(),
            last_bytes: self.number(),
            overhead_bytes: self.number(),
            held_byte_seconds: self.number(),
            cached_byte_seconds: self.number(),
            fragmented_byte_seconds: self.number(),
        }
    }

    fn recording(&mut self, recording: &str) -> RecordingRow {
        const KINDS: [RecordingKind; 5] = [
            RecordingKind::Room,
            RecordingKind::TorchSnapshot,
            RecordingKind::RmmLog,
            RecordingKind::JaxProfile,
            RecordingKind::Log,
        ];
        RecordingRow {
            recording: recording.to_owned(),
            process: self.maybe(Self::text),
            kind: self.one_of(&KINDS),
            rank: self.maybe(Self::small),
            local_rank: self.maybe(Self::small),
            world_size: self.maybe(Self::small),
            host: self.maybe(Self::text),
            pod: self.maybe(Self::text),
            node_rank: self.maybe(Self::small),
            job: self.maybe(Self::text),
            attempt: self.maybe(Self::small),
            replica: self.maybe(Self::text),
            run: self.maybe(Self::text),
            pid: self.maybe(Self::small),
            parent_pid: self.maybe(Self::small),
            program: self.maybe(Self::text),
            model: self.maybe(Self::text),
            framework: self.maybe(Self::text),
            launcher: self.maybe(Self::text),
            began_us: self.maybe(Self::number),
            ended_us: self.maybe(Self::number),
            silence_us: self.maybe(Self::number),
            end: self.end(),
            ended_line: self.maybe(Self::number),
            torn_bytes: self.number(),
            events: self.number(),
            is_incomplete: self.below(2) == 0,
            devices: self.list(3, Self::device),
            host_peak_bytes: self.maybe(Self::number),
            cgroup_bytes: self.maybe(Self::number),
            cgroup_limit_bytes: self.maybe(Self::number),
            is_first_failure: self.below(2) == 0,
            error: self.maybe(Self::text),
            cause: self.text(),
            certainty: self.text(),
            summary: self.text(),
            fixes: self.list(3, |random| (random.text(), random.maybe(Self::text))),
        }
    }

    fn failure(&mut self, recording: &str) -> FailureRow {
        const KINDS: [FailureKind; 11] = [
            FailureKind::DeviceMemory,
            FailureKind::Context,
            FailureKind::PinnedMemory,
            FailureKind::HostMemory,
            FailureKind::CollectiveTimeout,
            FailureKind::PeerLost,
            FailureKind::Terminated,
            FailureKind::Killed,
            FailureKind::Died,
            FailureKind::ExitCode,
            FailureKind::Other,
        ];
        FailureRow {
            recording: recording.to_owned(),
            kind: self.one_of(&KINDS),
            time_us: self.maybe(Self::number),
            device: self.maybe(Self::small),
            requested_bytes: self.maybe(Self::number),
            free_bytes: self.maybe(Self::number),
            limit_bytes: self.maybe(Self::number),
            held_bytes: self.maybe(Self::number),
            place: self.maybe(Self::text),
            later_allocations: self.number(),
            line: self.maybe(Self::number),
            others: self.list(3, |random| (random.small(), random.number())),
            pid: self.maybe(Self::small),
            killed: self.maybe(|random| KilledProcess {
                program: random.maybe(Self::text),
                cgroup: random.maybe(Self::text),
                host: random.maybe(Self::text),
            }),
            collective: self.maybe(|random| Collective {
                group: random.maybe(Self::text),
                number: random.number(),
                operation: random.maybe(Self::text),
                elements: random.maybe(|random| (random.number(), random.number())),
            }),
        }
    }

    /// One object with its rows.
    pub(crate) fn entry(&mut self, number: usize) -> Entry {
        let object = Object {
            source: format!("s3://bucket/{number}/{}", self.text()),
            size: self.number(),
            etag: self.text(),
            modified_us: self.maybe(Self::number),
        };
        let mut rows = Rows::default();
        for index in 0..self.below(4) {
            let name = format!("{} (rank {index})", object.source);
            rows.recordings.push(self.recording(&name));
            rows.failures.extend(self.list(3, |random| random.failure(&name)));
            rows.sites.extend(self.list(3, |random| SiteRow {
                recording: name.clone(),
                device: random.small(),
                place: random.text(),
                bytes: random.number(),
                blocks: random.number(),
            }));
            rows.steps.extend(self.list(3, |random| StepRow {
                recording: name.clone(),
                device: random.small(),
                step: random.small(),
                peak_bytes: random.number(),
                floor_bytes: random.number(),
            }));
            rows.series.extend(self.list(2, |random| {
                let column = |random: &mut Self| random.list(4, Self::number);
                SeriesRow {
                    recording: name.clone(),
                    device: random.small(),
                    elapsed_us: column(random),
                    held_bytes: column(random),
                    peak_bytes: column(random),
                }
            }));
        }
        let text = |random: &mut Self| random.text();
        rows.stops = self.list(2, |random| StopRow {
            file: text(random),
            reason: random.one_of(&[
                StopReason::TimeLimit,
                StopReason::Preemption,
                StopReason::NodeFailure,
                StopReason::Requeue,
                StopReason::User,
                StopReason::Unknown,
            ]),
            line: random.maybe(Self::number),
        });
        rows.unread = self.list(2, |random| Unread { file: text(random), reason: text(random) });
        Entry { object, rows }
    }
}
