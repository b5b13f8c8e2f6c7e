//! Allocator settings that conflict, or that have no effect.
//!
//! PyTorch 2.10 and later use the first of three variables that is set; older versions ignore `PYTORCH_ALLOC_CONF`.
//! `backend:cudaMallocAsync` disables all other settings, and a garbage collection threshold has no effect without a
//! memory limit. JAX and TensorFlow have variables that disable others. The simulator that `replay` uses decides
//! whether PyTorch accepts a value.

use makeroom_sim::{Settings, Version};

use super::{Check, Packages, Surroundings, Verdict};

/// PyTorch's variables, in order of precedence.
const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// All settings of all PyTorch versions.
const SETTINGS: [&str; 17] = [
    "backend",
    "expandable_segments",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_power2_divisions",
];

/// Settings whose value must be exactly `True` or `False`.
const SWITCHES: [&str; 5] = [
    "expandable_segments",
    "graph_capture_record_stream_reuse",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
];

/// Settings that the simulator does not parse.
const NOT_MODELLED: [&str; 4] = [
    "backend",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "release_lock_on_hipmalloc",
];

pub(super) fn check(surroundings: &Surroundings, packages: &Packages) -> Vec<Check> {
    let mut checks = pytorch(surroundings, packages);
    checks.extend(jax(surroundings));
    checks.extend(tensorflow(surroundings));
    if surroundings.variable("CUDA_MODULE_LOADING") == Some("EAGER") {
        let found = "CUDA_MODULE_LOADING=EAGER: every process loads all kernels of all libraries, hundreds of MiB per context";
        checks.push(Check::new("allocators", Verdict::Warning, found).fix("unset CUDA_MODULE_LOADING"));
    }
    if surroundings.variable("MAKEROOM") == Some("off") {
        let found = "MAKEROOM=off: makeroom run records nothing";
        checks.push(Check::new("allocators", Verdict::Warning, found).fix("unset MAKEROOM"));
    }
    if checks.is_empty() {
        checks.push(Check::new("allocators", Verdict::Good, "no conflicting allocator settings"));
    }
    checks
}

fn pytorch(surroundings: &Surroundings, packages: &Packages) -> Vec<Check> {
    let set: Vec<(&str, &str)> =
        VARIABLES.into_iter().filter_map(|name| Some((name, surroundings.variable(name)?))).collect();
    let Some(&(name, value)) = set.first() else { return Vec::new() };
    let mut checks = Vec::new();
    for (other, ignored) in set.iter().skip(1).filter(|(_, other)| *other != value) {
        let found = format!("{other}={ignored} is ignored because {name}={value} is also set");
        checks.push(warning(found, format!("merge it into {name}, then unset {other}")));
    }
    if let Some(torch) =
        packages.torch.as_ref().filter(|torch| name == "PYTORCH_ALLOC_CONF" && torch.release < (2, 10))
    {
        let found = format!("{name} is ignored by PyTorch {}", torch.version);
        checks.push(warning(found, format!("export PYTORCH_CUDA_ALLOC_CONF={value}")));
    }
    let is_older = packages.torch.as_ref().is_some_and(|torch| torch.release < (2, 10));
    checks.extend(settings(name, value, if is_older { Version::V2_9 } else { Version::default() }));
    checks
}

/// Checks the settings in one variable.
fn settings(name: &str, value: &str, version: Version) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut taken = Settings { version, ..Settings::default() };
    let pairs = pairs(value);
    let get = |key: &str| pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    for (key, setting) in &pairs {
        if !SETTINGS.contains(key) {
            let found = format!("{name}: PyTorch does not recognize `{key}` and stops with an error");
            checks.push(
                Check::new("allocators", Verdict::Problem, found).fix(format!("remove `{key}` from {name}")),
            );
        } else if SWITCHES.contains(key) && !matches!(*setting, "True" | "False") {
            let found = format!("{name}: `{key}:{setting}` must be exactly True or False");
            checks.push(Check::new("allocators", Verdict::Problem, found).fix(format!("write {key}:True")));
        } else if !NOT_MODELLED.contains(key)
            && let Err(refused) = taken.set(key, setting)
        {
            let found = format!("{name}: `{key}:{setting}`: {}; PyTorch stops with an error", refused.reason);
            let fix = format!("remove `{key}` from {name}, or set a valid value");
            checks.push(Check::new("allocators", Verdict::Problem, found).fix(fix));
        }
    }
    // PyTorch fails on these, so the other settings do not matter.
    if !checks.is_empty() {
        return checks;
    }
    if get("backend") == Some("cudaMallocAsync") && pairs.len() > 1 {
        let others: Vec<&str> = pairs.iter().map(|(key, _)| *key).filter(|key| *key != "backend").collect();
        let found = format!("{name}: backend:cudaMallocAsync ignores {}", others.join(", "));
        checks.push(warning(found, format!("export {name}=backend:cudaMallocAsync")));
        return checks;
    }
    let is_expandable = get("expandable_segments") == Some("True");
    if is_expandable && get("max_split_size_mb").is_some() {
        let found = format!(
            "{name}: max_split_size_mb stops large blocks from being split, which works against expandable_segments:True"
        );
        checks.push(warning(found, format!("export {name}=expandable_segments:True")));
    }
    if get("garbage_collection_threshold").is_some() && get("per_process_memory_fraction").is_none() {
        let found = format!(
            "{name}: garbage_collection_threshold has no effect unless the program sets a memory fraction below 1"
        );
        let fix = "add per_process_memory_fraction:0.95 (PyTorch 2.10 and later), or call torch.cuda.set_per_process_memory_fraction(0.95)";
        checks.push(Check::new("allocators", Verdict::Note, found).fix(fix));
    }
    checks
}

/// Splits into `key:value` pairs. Lists in brackets contain commas and colons.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    let ends = text.char_indices().chain([(text.len(), ',')]);
    for (position, letter) in ends {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 || position == text.len() => {
                let part = text.get(start..position).unwrap_or_default().trim();
                if let Some((key, value)) = part.split_once(':') {
                    pairs.push((key.trim(), value.trim()));
                } else if !part.is_empty() {
                    pairs.push((part, ""));
                }
                start = position + 1;
            }
            _ => {}
        }
    }
    pairs
}

fn jax(surroundings: &Surroundings) -> Vec<Check> {
    let mut checks = Vec::new();
    let fractions = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"];
    let set: Vec<(&str, &str)> =
        fractions.into_iter().filter_map(|name| Some((name, surroundings.variable(name)?))).collect();
    if let [(new, value), (old, other)] = set[..]
        && value != other
    {
        let found = format!("{old}={other} is ignored: it is the old name of {new}, which is set to {value}");
        checks.push(warning(found, format!("unset {old}")));
    }
    if surroundings.variable("XLA_PYTHON_CLIENT_ALLOCATOR") == Some("platform") {
        for name in ["XLA_PYTHON_CLIENT_PREALLOCATE", fractions[0], fractions[1]] {
            if surroundings.variable(name).is_some() {
                let found = format!(
                    "{name} has no effect with XLA_PYTHON_CLIENT_ALLOCATOR=platform, which does not cache memory"
                );
                checks.push(warning(found, format!("unset {name}")));
            }
        }
    }
    checks
}

fn tensorflow(surroundings: &Surroundings) -> Vec<Check> {
    let grows = surroundings
        .variable("TF_FORCE_GPU_ALLOW_GROWTH")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let is_async = surroundings.variable("TF_GPU_ALLOCATOR") == Some("cuda_malloc_async");
    if grows && is_async {
        let found = "TF_FORCE_GPU_ALLOW_GROWTH has no effect with TF_GPU_ALLOCATOR=cuda_malloc_async";
        return vec![Check::new("allocators", Verdict::Note, found).fix("unset TF_FORCE_GPU_ALLOW_GROWTH")];
    }
    Vec::new()
}

fn warning(found: String, fix: String) -> Check {
    Check::new("allocators", Verdict::Warning, found).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_brackets_are_one_value() {
        let text = "expandable_segments:True, roundup_power2_divisions:[256:1,512:2,>:4],backend:native";
        let expected = [
            ("expandable_segments", "True"),
            ("roundup_power2_divisions", "[256:1,512:2,>:4]"),
            ("backend", "native"),
        ];
        assert_eq!(pairs(text), expected);
        assert_eq!(pairs("x,[,"), [("x", ""), ("[,", "")]);
    }
}
