//! The fields of an identity by number, as a recording stores them, and the checks that every source passes.
//!
//! A field is a number and a text. Numbers are never reused, so that recordings stay readable.

use super::JobIdentity;

macro_rules! fields {
    ($($variant:ident = $number:literal $kind:ident $place:ident $name:literal,)*) => {
        /// A field of an identity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is a field of `JobIdentity`, which describes it")]
        pub enum JobField {
            $($variant,)*
        }

        impl JobField {
            /// All fields, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The field's number in a recording.
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                }
            }

            /// The field with this number in a recording.
            pub fn from_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The field's name in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Whether its value is a number.
            pub fn is_number(self) -> bool {
                match self {
                    $(Self::$variant => fields!(@is_number $kind),)*
                }
            }
        }

        impl JobIdentity {
            /// The value of a field as text.
            pub fn get(&self, field: JobField) -> Option<String> {
                match field {
                    $(JobField::$variant => self.$place.as_ref().map(ToString::to_string),)*
                }
            }

            /// Sets a field, if the value is valid and does not contradict another. Returns whether it was set.
            pub fn set(&mut self, field: JobField, value: &str) -> bool {
                let before = self.clone();
                let value = value.trim();
                let is_valid = match field {
                    $(JobField::$variant => {
                        let value = fields!(@parse $kind value);
                        let is_valid = value.is_some();
                        self.$place = value;
                        is_valid
                    })*
                };
                let is_set = is_valid && self.is_consistent();
                if !is_set {
                    *self = before;
                }
                is_set
            }
        }
    };
    (@is_number number) => { true };
    (@is_number text) => { false };
    (@parse number $value:ident) => { number($value) };
    (@parse text $value:ident) => { text($value) };
}

fields! {
    Rank = 1 number rank "rank",
    LocalRank = 2 number local_rank "local_rank",
    WorldSize = 3 number world_size "world_size",
    LocalWorldSize = 4 number local_world_size "local_world_size",
    NodeRank = 5 number node_rank "node_rank",
    Node = 6 text node "node",
    Host = 7 text host "host",
    JobId = 8 text job_id "job_id",
    Attempt = 9 number attempt "attempt",
    Task = 10 number task "task",
    Replica = 11 text replica "replica",
    Pod = 12 text pod "pod",
    Container = 13 text container "container",
    VisibleDevices = 14 text visible_devices "visible_devices",
    Framework = 15 text framework "framework",
    Launcher = 16 text launcher "launcher",
}

impl JobIdentity {
    /// The fields that are set, by number.
    pub fn fields(&self) -> impl Iterator<Item = (JobField, String)> {
        JobField::ALL.iter().filter_map(|&field| Some((field, self.get(field)?)))
    }

    fn is_consistent(&self) -> bool {
        let is_below = |rank: Option<u32>, size: Option<u32>| match (rank, size) {
            (Some(rank), Some(size)) => rank < size,
            (_, size) => size != Some(0),
        };
        is_below(self.rank, self.world_size) && is_below(self.local_rank, self.local_world_size)
    }
}

/// A number as launchers write it.
fn number(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = if is_plain { text.parse().ok()? } else { return None };
    (value <= JobIdentity::MOST_RANKS).then_some(value)
}

fn text(text: &str) -> Option<String> {
    let is_usable = (1..=JobIdentity::LONGEST_TEXT).contains(&text.len()) && !text.contains(is_invisible);
    is_usable.then(|| text.to_owned())
}

/// Control characters, and those that reorder or hide text.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_own_number_and_name_and_comes_back() {
        let mut identity = JobIdentity::default();
        for (position, &field) in JobField::ALL.iter().enumerate() {
            assert_eq!(usize::from(field.number()), position + 1);
            assert_eq!(JobField::from_number(u64::from(field.number())), Some(field));
            let value =
                if field == JobField::WorldSize || field == JobField::LocalWorldSize { "9" } else { "7" };
            assert!(identity.set(field, value), "{field:?}");
            assert_eq!(identity.get(field).as_deref(), Some(value));
        }
        assert_eq!(identity.fields().count(), JobField::ALL.len());
        assert_eq!(JobIdentity::default().or(&identity), identity);
        let mut names: Vec<&str> = JobField::ALL.iter().map(|field| field.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), JobField::ALL.len());
    }

    #[test]
    fn values_that_cannot_be_true_leave_everything_as_it_was() {
        let mut identity = JobIdentity::default();
        for rank in ["", "-1", "+1", "1.5", "1e3", "0x10", "1048577", "99999999999999999999", "１"] {
            assert!(!identity.set(JobField::Rank, rank), "{rank}");
        }
        assert!(!identity.set(JobField::WorldSize, "0"));
        assert!(identity.set(JobField::WorldSize, "8"));
        assert!(!identity.set(JobField::Rank, "8"));
        assert!(identity.set(JobField::Rank, " 7 "), "blanks around a number do not matter");
        assert!(!identity.set(JobField::WorldSize, "7"));
        assert_eq!((identity.rank, identity.world_size), (Some(7), Some(8)));
        let long = "x".repeat(JobIdentity::LONGEST_TEXT + 1);
        for name in ["", " ", "a\nb", "a\u{1b}[31mb", "a\u{202e}b", long.as_str()] {
            assert!(!identity.set(JobField::Node, name), "{name:?}");
        }
        assert!(identity.set(JobField::Node, &long[1..]));
    }
}
