//! PyTorch's allocator settings: the string in `PYTORCH_CUDA_ALLOC_CONF`, with the quirks of PyTorch's parser.
//!
//! Reproduced quirks: booleans must be exactly `True` or `False`. In the list form of `roundup_power2_divisions`, the
//! first key also covers all smaller sizes, `>` covers all larger ones, and sizes between two keys are not rounded at
//! all. One division means none.

use makeroom_core::AllocatorSettings;

/// Sizes in settings are in MiB.
const MIB: u64 = 1 << 20;
/// Default size of a segment for requests that are neither small nor large.
const LARGE_SEGMENT: u64 = 20 * MIB;
/// The number of powers of two, starting at 1 MiB, that can have their own divisions.
const ROUNDUP_INTERVALS: usize = 16;

/// The modeled release of PyTorch.
///
/// As far as recordings show, all releases place every block alike. The changes between them concern memory pools with
/// their own allocator, pools that are never split, and pools that lend memory when it runs out; recordings name none
/// of these. Two differences remain: 2.9 does not support `large_segment_size_mb` and `per_process_memory_fraction` and
/// fails on them; and in 2.9 a fraction of 1.0 set a limit, which turned on garbage collection, while later releases
/// set none. A limit given to the model applies in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// 2.9 and earlier releases with expandable segments.
    V2_9,
    /// 2.10 and 2.11.
    #[default]
    V2_11,
}

/// Settings of PyTorch's caching allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The modeled release.
    pub version: Version,
    /// Blocks of at least this size are not split. `u64::MAX`: no limit.
    pub max_split_size: u64,
    /// An unsplittable block may be larger than the request by this much.
    pub max_non_split_rounding: u64,
    /// The share of the limit above which unused segments are garbage collected; 0 is off.
    pub garbage_collection_threshold: f64,
    /// The size of a segment for requests of 1 to 10 MiB.
    pub large_segment_size: u64,
    /// Segments grow by mapping pages.
    pub expandable_segments: bool,
    /// Divisions of a power of two to which sizes are rounded up, for 1 MiB, 2 MiB, … 32 GiB; 0 and 1 are off.
    pub roundup_power2_divisions: [u32; ROUNDUP_INTERVALS],
    /// The share of the GPU's memory that the process may use.
    pub per_process_memory_fraction: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: Version::default(),
            max_split_size: u64::MAX,
            max_non_split_rounding: LARGE_SEGMENT,
            garbage_collection_threshold: 0.0,
            large_segment_size: LARGE_SEGMENT,
            expandable_segments: false,
            roundup_power2_divisions: [0; ROUNDUP_INTERVALS],
            per_process_memory_fraction: None,
        }
    }
}

/// Why a settings string is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocator setting `{setting}`: {reason}")]
pub struct SettingsError {
    /// The invalid part of the string.
    pub setting: String,
    /// Why.
    pub reason: String,
}

impl Settings {
    /// Parses a settings string (`expandable_segments:True,max_split_size_mb:128`) as the newest release does.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        Self::parse_for(Version::default(), text)
    }

    /// Parses a settings string as a release does.
    pub fn parse_for(version: Version, text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self { version, ..Self::default() };
        for entry in split_entries(text) {
            let (key, value) = entry.split_once(':').ok_or_else(|| refused(entry, "missing value"))?;
            settings.set(key.trim(), value.trim())?;
        }
        Ok(settings)
    }

    /// The settings that a recording was made with, as far as it contains them.
    pub fn recorded(recorded: &AllocatorSettings) -> Self {
        // The string contains settings that the fields lack (segment size, rounding of unsplittable blocks); the fields
        // reflect changes at run time. PyTorch accepted the string, so an unknown setting belongs to another release,
        // and the rest is still valid.
        let mut settings = Self::default();
        for (key, value) in split_entries(recorded.text.as_deref().unwrap_or_default())
            .filter_map(|entry| entry.split_once(':'))
        {
            let _ = settings.set(key.trim(), value.trim());
        }
        if let Some(size) = recorded.max_split_size {
            settings.max_split_size = size.get();
        }
        if let Some(threshold) = recorded.garbage_collection_threshold {
            settings.garbage_collection_threshold = threshold;
        }
        if let Some(is_on) = recorded.expandable_segments {
            settings.expandable_segments = is_on;
        }
        if let Some(divisions) = recorded.roundup_power2_divisions {
            settings.roundup_power2_divisions = divisions;
        }
        settings
    }

    /// The entries of a settings string other than `expandable_segments`, as the user wrote them.
    pub fn other_entries(text: &str) -> String {
        let key = |entry: &&str| entry.split(':').next().unwrap_or_default().trim() != "expandable_segments";
        split_entries(text).map(str::trim).filter(key).collect::<Vec<_>>().join(",")
    }

    /// The process's limit, given this much memory.
    pub(crate) fn limit_of(&self, memory: u64) -> u64 {
        self.per_process_memory_fraction.map_or(memory, |fraction| (fraction * memory as f64) as u64)
    }

    /// The reserved bytes above which garbage is collected under this limit; `None` if it is off. Without a limit, the
    /// setting has no effect, because it is a share of the limit.
    pub(crate) fn garbage_threshold(&self, limit: u64) -> Option<u64> {
        let share = self.garbage_collection_threshold;
        (share > 0.0).then_some((share * limit as f64) as u64)
    }

    /// Applies one setting as the release does.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        match key {
            "large_segment_size_mb" | "per_process_memory_fraction" if self.version == Version::V2_9 => {
                return Err(refused(key, "not supported by PyTorch 2.9"));
            }
            "max_split_size_mb" => {
                let size = number(key, value)?;
                if size < self.large_segment_size / MIB {
                    return Err(refused(key, "must be at least the size of a large segment, 20"));
                }
                self.max_split_size = size.min(u64::MAX / MIB) * MIB;
            }
            "max_non_split_rounding_mb" => {
                let size = number(key, value)?;
                if size < self.large_segment_size / MIB {
                    return Err(refused(key, "must be at least the size of a large segment, 20"));
                }
                self.max_non_split_rounding = size.min(u64::MAX / MIB) * MIB;
            }
            "large_segment_size_mb" => {
                let size = number(key, value)?;
                if size <= 10 {
                    return Err(refused(key, "must be more than 10"));
                }
                self.large_segment_size = size.min(1 << 20) * MIB;
                self.max_non_split_rounding = self.max_non_split_rounding.max(self.large_segment_size);
            }
            "garbage_collection_threshold" => {
                let threshold = fraction(key, value)?;
                if threshold <= 0.0 || threshold >= 1.0 {
                    return Err(refused(key, "must be between 0 and 1"));
                }
                self.garbage_collection_threshold = threshold;
            }
            "per_process_memory_fraction" => self.per_process_memory_fraction = Some(fraction(key, value)?),
            "expandable_segments" => self.expandable_segments = boolean(key, value)?,
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "backend" if value == "native" => {}
            "backend" => {
                return Err(refused(
                    key,
                    "this model supports only `native`; use the allocator `cuda-async`",
                ));
            }
            "release_lock_on_cudamalloc"
            | "pinned_use_cuda_host_register"
            | "pinned_num_register_threads"
            | "pinned_use_background_threads"
            | "pinned_reserve_segment_size_mb"
            | "graph_capture_record_stream_reuse" => {}
            _ => return Err(refused(key, "not a setting of PyTorch's allocator")),
        }
        Ok(())
    }

    /// The number of divisions for a size.
    pub(crate) fn divisions_for(&self, size: u64) -> u64 {
        let power = 63 - size.max(1).leading_zeros() as usize;
        u64::from(self.roundup_power2_divisions[power.saturating_sub(20).min(ROUNDUP_INTERVALS - 1)])
    }
}

fn refused(setting: &str, reason: &str) -> SettingsError {
    SettingsError { setting: setting.to_owned(), reason: reason.to_owned() }
}

fn number(key: &str, value: &str) -> Result<u64, SettingsError> {
    value.parse().map_err(|_| refused(key, &format!("`{value}` is not a whole number")))
}

fn fraction(key: &str, value: &str) -> Result<f64, SettingsError> {
    let parsed: Option<f64> = value.parse().ok().filter(|value: &f64| (0.0..=1.0).contains(value));
    parsed.ok_or_else(|| refused(key, &format!("`{value}` is not a number from 0 to 1")))
}

fn boolean(key: &str, value: &str) -> Result<bool, SettingsError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(refused(key, &format!("`{value}` is neither `True` nor `False`"))),
    }
}

/// Splits at commas outside of brackets.
fn split_entries(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        character == ',' && depth <= 0
    })
    .map(str::trim)
    .filter(|entry| !entry.is_empty())
}

fn divisions(value: &str) -> Result<[u32; ROUNDUP_INTERVALS], SettingsError> {
    const KEY: &str = "roundup_power2_divisions";
    let count = |text: &str| -> Result<u32, SettingsError> {
        let count: u32 =
            text.trim().parse().map_err(|_| refused(KEY, &format!("`{text}` is not a number")))?;
        if count > 64 || (count != 0 && !count.is_power_of_two()) {
            return Err(refused(KEY, "must be a power of two up to 64"));
        }
        Ok(count)
    };
    let Some(pairs) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok([count(value)?; ROUNDUP_INTERVALS]);
    };
    let mut divisions = [0; ROUNDUP_INTERVALS];
    let mut last = None;
    for pair in pairs.split(',') {
        let (size, value) = pair.split_once(':').ok_or_else(|| refused(KEY, "a pair has no value"))?;
        let value = count(value)?;
        if size.trim() == ">" {
            divisions[last.map_or(0, |last: usize| (last + 1).min(ROUNDUP_INTERVALS))..].fill(value);
            continue;
        }
        let size: u64 = number(KEY, size.trim())?;
        if !size.is_power_of_two() {
            return Err(refused(KEY, "sizes must be powers of two"));
        }
        let index = (size.trailing_zeros() as usize).min(ROUNDUP_INTERVALS - 1);
        if last.is_none() {
            divisions[..index].fill(value);
        }
        divisions[index] = value;
        last = Some(index);
    }
    Ok(divisions)
}

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;

    use super::*;

    #[test]
    fn settings_are_read_as_pytorch_reads_them() {
        let settings = Settings::parse(
            "expandable_segments:True, max_split_size_mb:64,garbage_collection_threshold:0.8",
        )
        .unwrap();
        assert!(settings.expandable_segments);
        assert_eq!(settings.max_split_size, 64 * MIB);
        assert!((settings.garbage_collection_threshold - 0.8).abs() < 1e-9);
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
    }

    #[test]
    fn the_list_of_divisions_leaves_gaps() {
        let settings = Settings::parse("roundup_power2_divisions:[256:1,512:2,2048:4,>:8]").unwrap();
        let expected = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 4, 8, 8, 8, 8];
        assert_eq!(settings.roundup_power2_divisions, expected);
        assert_eq!(settings.divisions_for(3 << 20), 1);
        assert_eq!(settings.divisions_for(u64::MAX), 8);
    }

    #[test]
    fn what_is_not_known_of_a_recorded_string_is_passed_over() {
        let text =
            "some_new_setting:7,max_split_size_mb:64,odd,roundup_power2_divisions:3,expandable_segments:True";
        let recorded = AllocatorSettings { text: Some(text.to_owned()), ..AllocatorSettings::default() };
        let settings = Settings::recorded(&recorded);
        assert_eq!((settings.max_split_size, settings.expandable_segments), (64 * MIB, true));
        // A field overrides the string; a missing field has no effect.
        let changed = AllocatorSettings { max_split_size: Some(Bytes::new(u64::MAX)), ..recorded };
        assert_eq!(Settings::recorded(&changed).max_split_size, u64::MAX);
        assert!(Settings::parse(text).is_err());
    }

    #[test]
    fn wrong_settings_are_named() {
        for text in [
            "expandable_segments:true",
            "max_split_size_mb:4",
            "garbage_collection_threshold:1.5",
            "roundup_power2_divisions:3",
            "nonsense:1",
            "expandable_segments",
            "backend:cudaMallocAsync",
            "large_segment_size_mb:10",
        ] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
    }
}
