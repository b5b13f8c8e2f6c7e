//! PyTorch's allocator settings: `name:value` pairs with commas between them, where a value may be a list in brackets.

/// Settings that only PyTorch's own allocator has; its stream-ordered backend warns about most of them.
const OF_OTHER_BACKENDS: [&str; 6] = [
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_split_size_mb",
    "roundup_power2_divisions",
];

/// The user's settings with another backend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Merged {
    /// What the variable is set to.
    pub(super) value: String,
    /// What had to go.
    pub(super) dropped: Vec<String>,
}

/// Puts the stream-ordered backend into the user's settings.
pub(super) fn with_stream_ordered_backend(theirs: &str) -> Merged {
    let mut value = String::from("backend:cudaMallocAsync");
    let mut dropped = Vec::new();
    for setting in split(theirs) {
        let name = setting.split(':').next().unwrap_or_default().trim();
        if setting.trim() == "backend:cudaMallocAsync" {
            continue;
        }
        if OF_OTHER_BACKENDS.contains(&name) {
            dropped.push(setting.trim().to_owned());
        } else {
            value.push(',');
            value.push_str(setting.trim());
        }
    }
    Merged { value, dropped }
}

/// The settings one by one. Commas inside of brackets belong to a value.
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

    #[test]
    fn lists_stay_whole() {
        let merged = with_stream_ordered_backend(
            "roundup_power2_divisions:[256:1,512:2,>:4], pinned_use_background_threads:True,backend:native",
        );
        assert_eq!(merged.value, "backend:cudaMallocAsync,pinned_use_background_threads:True");
        assert_eq!(merged.dropped, ["roundup_power2_divisions:[256:1,512:2,>:4]", "backend:native"]);
    }

    #[test]
    fn nothing_and_the_same_backend_need_no_word() {
        for theirs in ["", "backend:cudaMallocAsync", " , "] {
            let merged = with_stream_ordered_backend(theirs);
            assert_eq!(merged.value, "backend:cudaMallocAsync");
            assert!(merged.dropped.is_empty());
        }
    }
}
