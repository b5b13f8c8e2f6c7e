//! The vocabulary of snapshots: every key and every fixed value that is used here.
//!
//! A string from the file is looked up once, when it arrives. From then on, a key is a small number, and the keys of
//! a dict determine its [`Kind`].

use super::record::Kind;

macro_rules! words {
    ($($word:ident = $text:literal),* $(,)?) => {
        /// A known string. 64 bits wide, for the same reason as the tag of a `Value`: both are stored next to each
        /// other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u64)]
        pub(super) enum Word { $($word),* }

        impl Word {
            const ALL: &[Self] = &[$(Self::$word),*];

            /// The word with this text.
            pub(super) fn from_text(text: &[u8]) -> Option<Self> {
                match text {
                    $($text => Some(Self::$word),)*
                    _ => None,
                }
            }

            /// The text of this word.
            pub(super) fn text(self) -> &'static str {
                let text: &[u8] = match self { $(Self::$word => $text),* };
                str::from_utf8(text).unwrap_or_default()
            }
        }
    };
}

words! {
    // Strings that nearly every event repeats.
    NotAvailable = b"N/A", Empty = b"",
    // The snapshot.
    Segments = b"segments", DeviceTraces = b"device_traces", AllocatorSettings = b"allocator_settings",
    ExternalAnnotations = b"external_annotations", TraceOverflowed = b"trace_alloc_overflowed",
    TraceMaxEntries = b"trace_alloc_max_entries", HostSegments = b"host_segments",
    HostTraces = b"host_traces",
    // Events.
    Action = b"action", Addr = b"addr", DeviceFree = b"device_free", Size = b"size", Stream = b"stream",
    TimeUs = b"time_us", Frames = b"frames", PoolId = b"pool_id",
    Alloc = b"alloc", FreeRequested = b"free_requested", FreeCompleted = b"free_completed",
    SegmentAlloc = b"segment_alloc", SegmentFree = b"segment_free", SegmentMap = b"segment_map",
    SegmentUnmap = b"segment_unmap", Snapshot = b"snapshot", Oom = b"oom",
    UserMetadata = b"user_metadata", CompileContext = b"compile_context", Annotate = b"annotate",
    UserDefined = b"user_defined",
    // Frames; `library` is makeroom's own, for native code.
    Name = b"name", Filename = b"filename", Line = b"line", Library = b"library",
    OriginalTrace = b"fx_original_trace",
    // Segments.
    Device = b"device", Address = b"address", TotalSize = b"total_size", SegmentType = b"segment_type",
    SegmentPoolId = b"segment_pool_id", IsExpandable = b"is_expandable", Blocks = b"blocks",
    Small = b"small", Large = b"large",
    // Blocks.
    RequestedSize = b"requested_size", State = b"state", History = b"history", RealSize = b"real_size",
    ActiveAllocated = b"active_allocated", ActivePendingFree = b"active_pending_free",
    ActiveAwaitingFree = b"active_awaiting_free", Inactive = b"inactive",
    // Annotations.
    Stage = b"stage", Start = b"START", End = b"END",
    // Settings.
    CudaAllocConf = b"PYTORCH_CUDA_ALLOC_CONF", AllocConf = b"PYTORCH_ALLOC_CONF",
    MaxSplitSize = b"max_split_size", CollectionThreshold = b"garbage_collection_threshold",
    ExpandableSegments = b"expandable_segments", RoundupDivisions = b"roundup_power2_divisions",
    // Added by makeroom's own pool.
    PoolLimits = b"makeroom_pool_limits",
    Division0 = b"1", Division1 = b"2", Division2 = b"4", Division3 = b"8", Division4 = b"16",
    Division5 = b"32", Division6 = b"64", Division7 = b"128", Division8 = b"256", Division9 = b"512",
    Division10 = b"1024", Division11 = b"2048", Division12 = b"4096", Division13 = b"8192",
    Division14 = b"16384", Division15 = b"32768",
}

impl Word {
    /// How many words there are.
    pub(super) const COUNT: u32 = Self::ALL.len() as u32;

    /// The word with this number.
    pub(super) fn at(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// The index of the size, from 1 MiB, for which this word is a key of the rounding setting.
    pub(super) fn division(self) -> Option<usize> {
        (self as usize).checked_sub(Self::Division0 as usize)
    }

    /// The kind of dict that this key suggests.
    #[inline]
    pub(super) fn kind(self) -> Kind {
        const KINDS: [Kind; Word::ALL.len()] = {
            let mut kinds = [Kind::Plain; Word::ALL.len()];
            let mut number = 0;
            while number < kinds.len() {
                kinds[number] = Word::ALL[number].told_kind();
                number += 1;
            }
            kinds
        };
        KINDS[self as usize]
    }

    const fn told_kind(self) -> Kind {
        match self {
            Self::Action => Kind::Event,
            Self::Filename => Kind::Frame,
            Self::State => Kind::Block,
            Self::Blocks | Self::TotalSize | Self::SegmentType => Kind::Segment,
            Self::Stage => Kind::Annotation,
            Self::RealSize => Kind::Tenant,
            Self::Segments | Self::DeviceTraces => Kind::Snapshot,
            Self::MaxSplitSize | Self::CudaAllocConf | Self::AllocConf | Self::Division0 => Kind::Settings,
            _ => Kind::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_by_its_text_and_its_number() {
        for (number, &word) in Word::ALL.iter().enumerate() {
            assert_eq!(Word::from_text(word.text().as_bytes()), Some(word));
            assert_eq!(Word::at(number as u32), Some(word));
        }
        assert_eq!(Word::from_text(b"actio"), None);
        assert_eq!(Word::at(Word::COUNT), None);
        assert_eq!(Word::Division15.division(), Some(15));
        assert_eq!(Word::ExpandableSegments.division(), None);
    }
}
