//! PyTorch's allocator settings: `name:value` pairs separated by commas, where a value may be a list in brackets.
//!
//! PyTorch ignores spaces, and the last of several values for the same setting applies.

const EXPANDABLE: &str = "expandable_segments";
pub(super) const ASYNC_BACKEND: &str = "backend:cudaMallocAsync";

/// Settings that only PyTorch's native allocator has; its stream-ordered backend warns about most of them.
const NATIVE_ONLY: [&str; 6] = [
    "backend",
    EXPANDABLE,
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_split_size_mb",
    "roundup_power2_divisions",
];

/// The user's setting for expandable segments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expandable {
    /// The user turned them on.
    Chosen,
    /// The user chose otherwise, with this setting.
    Declined(String),
    /// Not set; this is the value with the setting added.
    Unset(String),
}

/// Reads the user's choice, and adds expandable segments if there is none.
pub(super) fn with_expandable_segments(theirs: &str) -> Expandable {
    let settings = split(theirs);
    let last =
        |name: &str| settings.iter().rev().map(|setting| plain(setting)).find(|one| name_of(one) == name);
    if let Some(backend) = last("backend").filter(|backend| backend == ASYNC_BACKEND) {
        return Expandable::Declined(backend);
    }
    match last(EXPANDABLE) {
        // PyTorch itself reports a value that is neither True nor False.
        Some(choice) if choice != "expandable_segments:True" => Expandable::Declined(choice),
        Some(_) => Expandable::Chosen,
        None => {
            let all = settings.iter().map(|setting| setting.trim()).chain(["expandable_segments:True"]);
            Expandable::Unset(all.collect::<Vec<_>>().join(","))
        }
    }
}

/// The user's settings on the stream-ordered backend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamOrdered {
    /// The merged value.
    pub(super) value: String,
    /// The settings that this backend does not have.
    pub(super) dropped: Vec<String>,
}

/// Switches the user's settings to the stream-ordered backend.
pub(super) fn with_stream_ordered_backend(theirs: &str) -> StreamOrdered {
    let mut value = String::from(ASYNC_BACKEND);
    let mut dropped = Vec::new();
    for setting in split(theirs) {
        let setting = setting.trim();
        if plain(setting) == ASYNC_BACKEND {
            continue;
        }
        if NATIVE_ONLY.contains(&name_of(&plain(setting))) {
            dropped.push(setting.to_owned());
        } else {
            value.push(',');
            value.push_str(setting);
        }
    }
    StreamOrdered { value, dropped }
}

fn plain(setting: &str) -> String {
    setting.chars().filter(|letter| !letter.is_whitespace()).collect()
}

fn name_of(setting: &str) -> &str {
    setting.split(':').next().unwrap_or_default()
}

/// Splits the settings. Commas inside brackets belong to a value.
fn split(settings: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = settings.split(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth <= 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(value: &str) -> Expandable {
        Expandable::Unset(value.to_owned())
    }

    #[test]
    fn expandable_segments_join_the_users_settings() {
        assert_eq!(with_expandable_segments(""), on("expandable_segments:True"));
        assert_eq!(with_expandable_segments(" , "), on("expandable_segments:True"));
        assert_eq!(
            with_expandable_segments("roundup_power2_divisions:[256:1,512:2,>:4], max_split_size_mb:64"),
            on("roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:64,expandable_segments:True")
        );
        assert_eq!(with_expandable_segments("backend:native"), on("backend:native,expandable_segments:True"));
        assert_eq!(
            with_expandable_segments("max_split_size_mb:64,"),
            on("max_split_size_mb:64,expandable_segments:True"),
            "PyTorch accepts a comma at the end, and no two in a row"
        );
        let unknown = "nonsense:[1,2";
        assert_eq!(
            with_expandable_segments(unknown),
            on("nonsense:[1,2,expandable_segments:True"),
            "PyTorch rejects it, as without makeroom"
        );
    }

    #[test]
    fn the_users_own_choice_stays() {
        for (theirs, setting) in [
            ("expandable_segments:False", "expandable_segments:False"),
            ("max_split_size_mb:64, expandable_segments: False", "expandable_segments:False"),
            ("expandable_segments:True,expandable_segments:False", "expandable_segments:False"),
            ("expandable_segments:true", "expandable_segments:true"),
            ("backend:cudaMallocAsync", "backend:cudaMallocAsync"),
            ("expandable_segments:True,backend: cudaMallocAsync", "backend:cudaMallocAsync"),
        ] {
            assert_eq!(
                with_expandable_segments(theirs),
                Expandable::Declined(setting.to_owned()),
                "{theirs}"
            );
        }
        for theirs in [
            "expandable_segments : True, max_split_size_mb:64",
            "expandable_segments:False,expandable_segments:True",
            "max_split_size_mb:64,expandable_segments:True,",
        ] {
            assert_eq!(with_expandable_segments(theirs), Expandable::Chosen, "{theirs}: the last one counts");
        }
    }

    #[test]
    fn the_stream_ordered_backend_drops_what_it_does_not_have() {
        let merged = with_stream_ordered_backend(
            "roundup_power2_divisions:[256:1,512:2,>:4], pinned_use_background_threads:True,backend:native",
        );
        assert_eq!(merged.value, "backend:cudaMallocAsync,pinned_use_background_threads:True");
        assert_eq!(merged.dropped, ["roundup_power2_divisions:[256:1,512:2,>:4]", "backend:native"]);
        for theirs in ["", "backend:cudaMallocAsync", " , "] {
            let merged = with_stream_ordered_backend(theirs);
            assert_eq!(merged.value, "backend:cudaMallocAsync");
            assert!(merged.dropped.is_empty());
        }
    }
}
