//! Gradient boosting on the GPU: XGBoost, LightGBM, CatBoost. Memory is the quantized data (rows times features
//! times bins) and histograms (nodes times features times bins); there are no batches.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&XGBOOST, &LIGHTGBM, &CATBOOST];

const XGBOOST: Program = Program {
    name: "XGBoost",
    frameworks: &[Framework::XgBoost],
    marks: &[
        "xgboost/",
        "xgboost.core",
        "xgb.train",
        "XGBClassifier",
        "XGBRegressor",
        "cpu_predictor",
        "gpu_predictor",
        "gpu_hist",
    ],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, XGBOOST_LEVERS),
};

const XGBOOST_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer bins{from| (default 256)}: the quantized data shrinks with them",
        "max_bin={to}",
        &["max_bin"],
        128,
    )
    .at_least(16, 16),
    Lever::new(
        "build the quantized data in batches instead of a DMatrix",
        "xgboost.QuantileDMatrix(X, y, max_bin=128)",
    )
    .unless_said(&["QuantileDMatrix("]),
    Lever::new(
        "use gradient-based row sampling",
        "tree_method=\"hist\", device=\"cuda\", subsample=0.2, sampling_method=\"gradient_based\"",
    )
    .unless_said(&["gradient_based"]),
    Lever::lower("grow shallower trees{from}", "max_depth={to}", &["max_depth"], 6).at_least(4, 1),
    Lever::new(
        "keep the data in host memory (external memory)",
        "xgboost.ExtMemQuantileDMatrix(iterator, max_bin=128)",
    )
    .unless_said(&["ExtMemQuantileDMatrix"]),
];

const LIGHTGBM: Program = Program {
    name: "LightGBM",
    frameworks: &[Framework::LightGbm],
    marks: &["[LightGBM]", "lightgbm/", "lightgbm.basic", "LGBMClassifier", "LGBMRegressor"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, LIGHTGBM_LEVERS),
        _ => lever::steps(situation, cause, LIGHTGBM_LEVERS),
    },
};

const LIGHTGBM_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer bins{from| (default 255)}: LightGBM recommends 63 for GPUs",
        "max_bin=63",
        &["max_bin"],
        63,
    )
    .at_least(63, 1),
    Lever::lower("use fewer bins{from}", "max_bin=15", &["max_bin"], 0)
        .at_least(15, 1)
        .only(|situation| situation.settings.number(&["max_bin"]).is_some_and(|bins| bins <= 63.0)),
    Lever::new("keep histograms in single precision", "gpu_use_dp=false")
        .only(|situation| situation.settings.is_on(&["gpu_use_dp"])),
    Lever::lower("grow fewer leaves{from}", "num_leaves={to}", &["num_leaves"], 31).at_least(15, 1),
    Lever::new(
        "use the CUDA build: OpenCL limits a single buffer to part of the GPU's memory",
        "device_type=cuda",
    )
    .unless_said(&["device_type=cuda", "device_type: cuda", "[CUDA]", "'device': 'cuda'"]),
    Lever::new("use a random subset of the features for each tree", "feature_fraction=0.5")
        .unless_said(&["feature_fraction"]),
];

const CATBOOST: Program = Program {
    name: "CatBoost",
    frameworks: &[Framework::CatBoost],
    marks: &["catboost"],
    work: Work::Other,
    advise: catboost,
};

fn catboost(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let cause = match cause {
        Cause::HostMemory => return pinned(),
        Cause::ArtificialLimit => return vec![larger_part(situation)],
        Cause::Preallocation => Cause::OtherProcesses,
        cause => cause,
    };
    let mut fixes = lever::steps(situation, cause, CATBOOST_LEVERS);
    if let Some((device, free)) = situation.emptier_device() {
        fixes.insert(
            0,
            Fix::new(format!("train on GPU {device}, which has {free} free"))
                .command(format!("devices='{device}'")),
        );
    }
    if cause == Cause::OtherProcesses {
        fixes.insert(0, smaller_part(situation));
    }
    fixes
}

/// The share of the card that the pool takes at the start, where the rest is in use.
fn smaller_part(situation: &Situation<'_>) -> Fix {
    let facts = situation.facts;
    let is_pool = facts.statements.iter().any(|statement| statement.cause == Cause::Preallocation);
    let part = match (facts.free.or(facts.cached), facts.request) {
        // The request is the pool: 95 % of the card.
        (Some(free), Some(request)) if is_pool => (free.share_of(request) * 0.95 * 0.9).clamp(0.05, 0.9),
        _ => 0.5,
    };
    Fix::new("reserve a smaller share of GPU memory at startup (default 0.95)")
        .command(format!("gpu_ram_part={part:.2}"))
}

fn larger_part(situation: &Situation<'_>) -> Fix {
    let part = situation.settings.number(&["gpu_ram_part"]).map_or(0.95, |part| (part * 1.5).min(0.95));
    Fix::new("let CatBoost use a larger share of GPU memory").command(format!("gpu_ram_part={part:.2}"))
}

fn pinned() -> Vec<Fix> {
    vec![
        Fix::new("pin less host memory (default 1 GB per device)").command("pinned_memory_size='256mb'"),
        Fix::new("limit CatBoost's use of host memory").command("used_ram_limit='16gb'"),
    ]
}

const CATBOOST_LEVERS: &[Lever] = &[
    Lever::lower(
        "use fewer bins{from| (default 128 on GPUs)}",
        "border_count=32",
        &["border_count", "max_bin"],
        32,
    )
    .at_least(32, 1),
    Lever::lower(
        "grow shallower trees{from}: histograms double with each level",
        "depth={to}",
        &["depth", "max_depth"],
        6,
    )
    .at_least(4, 1),
    Lever::new("do not combine categorical features", "max_ctr_complexity=1")
        .unless_said(&["max_ctr_complexity=1", "max_ctr_complexity': 1"]),
    Lever::new("keep categorical values in pinned host memory", "gpu_cat_features_storage='CpuPinnedMemory'")
        .unless_said(&["CpuPinnedMemory"]),
    Lever::new(
        "grow symmetric trees: Lossguide keeps histograms for every leaf",
        "grow_policy='SymmetricTree'",
    )
    .only(|situation| situation.settings.mentions("Lossguide")),
    Lever::new("let CatBoost use more of the GPU's memory", "gpu_ram_part=0.98").only(|situation| {
        situation.environment.system != System::Windows
            && situation.settings.number(&["gpu_ram_part"]).is_some_and(|part| part < 0.9)
    }),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, log, first, set) in [
            (
                "XGBoost",
                "Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 2.5GB\n- Requested memory: 4.1GB",
                "max_bin=128",
                ("sampling_method='gradient_based'", "gradient_based"),
            ),
            (
                "LightGBM",
                "[LightGBM] [Fatal] [CUDA] out of memory /src/cuda/cuda_column_data.cpp 67",
                "max_bin=63",
                ("'feature_fraction': 0.3", "feature_fraction"),
            ),
            (
                "CatBoost",
                "catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 3000.5 MB; Free 1200.25 MB",
                "border_count=32",
                ("border_count=32", "border_count"),
            ),
        ] {
            check(name, log, first, set);
        }
    }

    #[test]
    fn boosting_has_no_batches() {
        let log = "catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 3000.5 MB; Free 1200.25 MB";
        let (_, steps) = advice(log, Cause::LiveDataFillsDevice);
        assert!(
            steps.iter().all(|fix| !fix.action.contains("batch") && !fix.action.contains("image")),
            "{steps:?}"
        );
    }

    #[test]
    fn the_pool_takes_what_is_free() {
        let log = "catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 8000.0 MB; Free 4000.0 MB\n| 23%  37C  P8  9W / 250W |   4400MiB /  8421MiB |      0%      Default |";
        let (_, steps) = advice(log, Cause::Preallocation);
        assert!(steps.iter().any(|fix| fix.command.as_deref() == Some("gpu_ram_part=0.43")), "{steps:?}");
    }

    #[test]
    fn an_emptier_gpu_in_a_table_is_named() {
        let log = "catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 3000.0 MB; Free 1200.0 MB\n|   0  GTX 1080 Ti  Off  | 00000000:01:00.0  On |  N/A |\n| 23%  37C  P8  9W / 250W |  10400MiB / 11175MiB |      0%      Default |\n|   1  GTX 1080 Ti  Off  | 00000000:02:00.0 Off |  N/A |\n| 23%  37C  P8  9W / 250W |    175MiB / 11175MiB |      0%      Default |";
        let (_, steps) = advice(log, Cause::LiveDataFillsDevice);
        assert_eq!(steps[0].command.as_deref(), Some("devices='1'"), "{steps:?}");
    }
}
