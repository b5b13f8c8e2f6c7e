//! Encoders and renderers: `FFmpeg`, `NVEnc`, Blender's Cycles, `OptiX`. They say that memory ran out and give
//! no figures.
//!
//! | program | wording |
//! |---|---|
//! | `FFmpeg` | `OpenEncodeSessionEx failed: out of memory (10)`, `CreateInputBuffer failed`, `CreateBitstreamBuffer failed: out of memory (10)` |
//! | `NVEnc` | `nvEncOpenEncodeSessionEx: 10 (NVENC indicates that the API call failed because it was unable to allocate enough memory …)` |
//! | Cycles | `System is out of GPU memory`, `System is out of GPU and shared host memory`, `Out of memory in cuMemAlloc(…)` |
//! | `OptiX` | `OPTIX_ERROR_DEVICE_OUT_OF_MEMORY`, `OPTIX_ERROR_HOST_OUT_OF_MEMORY` |

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "EncodeSessionEx",
        "Buffer failed: out of memory (10)",
        "System is out of GPU",
        "Out of memory in cu",
        "OPTIX_ERROR_DEVICE_OUT_OF_MEMORY",
        "OPTIX_ERROR_HOST_OUT_OF_MEMORY",
    ],
    read,
};

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let lower = line.to_ascii_lowercase();
    if line.contains("EncodeSessionEx") {
        if !lower.contains("memory") {
            return None;
        }
        let mut facts = Facts::new("nvenc", Resource::Device, passage);
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Possible,
            "The encoder answers so when the driver's limit on sessions at a time is reached, and also when memory is short.",
        );
        return Some(facts);
    }
    if lower.contains("buffer failed") {
        return Some(Facts::new("nvenc", Resource::Device, passage));
    }
    if line.contains("OPTIX_ERROR_HOST") {
        let mut facts = Facts::new("optix", Resource::Host, passage);
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "OptiX has a status of its own for host memory, and returned that one.",
        );
        return Some(facts);
    }
    // Cycles falls back on host memory, and means both when it names both.
    let resource = if line.contains("host memory") { Resource::Unknown } else { Resource::Device };
    Some(Facts::new(if line.contains("OPTIX") { "optix" } else { "blender" }, resource, passage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn an_encoder_that_gets_no_session() {
        let text = "[h264_nvenc @ 0x55f4] OpenEncodeSessionEx failed: out of memory (10): (no details)\n[h264_nvenc @ 0x55f4] No capable devices found";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework, "nvenc");
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
        assert!(facts_in("OpenEncodeSessionEx failed: unsupported device (2)").is_none());
    }

    #[test]
    fn renderers() {
        for (text, framework, resource) in [
            ("System is out of GPU and shared host memory", "blender", Resource::Unknown),
            ("System is out of GPU memory", "blender", Resource::Device),
            (
                "Out of memory in cuMemAlloc(&device_pointer, size) (cuda/device_impl.cpp:31)",
                "blender",
                Resource::Device,
            ),
            ("OPTIX_ERROR_DEVICE_OUT_OF_MEMORY: Device out of memory", "optix", Resource::Device),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework, facts.resource), (framework, resource));
            assert!(facts.statements.is_empty());
        }
    }
}
