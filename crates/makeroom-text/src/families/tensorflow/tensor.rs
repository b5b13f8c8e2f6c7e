//! TensorFlow's tensors that found no memory.
//!
//! | versions | wording |
//! |---|---|
//! | – 1.3 | `OOM when allocating tensor with shape[64,128,56,56]` |
//! | 1.4 – | `… and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc` |
//! | 2.x | `ResourceExhaustedError: failed to allocate memory [Op:Mul]`, `{{function_node …}} failed to allocate memory` |
//!
//! The request is the product of the shape and the size of the type; without the type it is not known.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::bfc_dump::is_host;
use super::pool_dump::Dump;
use super::start::Start;
use crate::facts::{Allocator, Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "when allocating tensor with shape",
        "OOM when allocating tensor",
        "ResourceExhaustedError",
        "failed to allocate memory",
    ],
    read,
};

static TENSOR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:OOM|^O?M) when allocating tensor (?:with|of) shape ?\[([-\d, ]*)\](?: and type (\w+))?(?: on (\S+))?(?: by allocator (\w+))?",
    )
});
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)/(?:device:)?GPU:(\d+)"));
static WITHOUT_FIGURES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:ResourceExhaustedError|RESOURCE_EXHAUSTED|Resource exhausted).*failed to allocate memory",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let Some(found) = TENSOR.captures(&passage.flat) else {
        return WITHOUT_FIGURES.is_match(&passage.flat).then(|| Facts {
            allocator: Allocator::Bfc,
            ..Facts::new(Framework::TensorFlow, Resource::Unknown, passage)
        });
    };
    let place = found.get(3).map_or("", |place| place.as_str());
    let allocator = found.get(4).map_or("", |name| name.as_str());
    let device = DEVICE.captures(place).and_then(|found| captured_number(&found, 1));
    let shape = &found[1];
    let start = Start::read(passage);
    let mut facts = Facts {
        allocator: Allocator::Bfc,
        device: device.map(DeviceIndex),
        request: found.get(2).and_then(|name| tensor_bytes(shape, name.as_str())),
        total: start.total,
        ..Facts::new(Framework::TensorFlow, Resource::Unknown, passage)
    };
    if facts.request.is_none()
        && let Some(bytes) = tensor_bytes(shape, "float")
    {
        facts.evidence.push(format!(
            "The tensor has the shape [{shape}], which is {bytes} if each element takes 4 bytes"
        ));
    }
    if shape.contains('-') {
        facts.state(
            Cause::IntegerOrShapeBug,
            Certainty::Certain,
            format!("The shape [{shape}] has a negative dimension: a size overflowed."),
        );
    } else if is_host(allocator) || place.contains("CPU:") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "The tensor is placed in host memory. The GPU is not involved.",
        );
    } else {
        facts.resource = if device.is_some() { Resource::Device } else { Resource::Unknown };
        lead_by_fraction(passage, &mut facts);
        state_share(start, &mut facts);
        start.state(&mut facts);
        Dump::above(passage).state(false, &mut facts);
    }
    Some(facts)
}

/// A configured fraction of the GPU below this share is the limit that a tensor meets first.
const SMALL_FRACTION: f64 = 0.5;
static FRACTION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)gpu_memory_fraction\W{1,4}(0?\.\d+)"));

/// The text shows that TensorFlow may use only a small part of the GPU.
fn lead_by_fraction(passage: &Passage<'_>, facts: &mut Facts) {
    let set = passage.all().find_map(|line| captured_number::<f64>(&FRACTION.captures(line)?, 1));
    if let Some(fraction) = set.filter(|&fraction| fraction < SMALL_FRACTION) {
        let percent = (fraction * 100.0).round();
        facts.lead(
            Cause::ArtificialLimit,
            format!("According to the log, TensorFlow is limited to {percent} % of the GPU's memory (gpu_memory_fraction)."),
        );
    }
}

/// A tensor larger than all that TensorFlow may use needs no further explanation.
fn state_share(start: Start, facts: &mut Facts) {
    if let (Some(share), Some(request)) = (start.share, facts.request)
        && request > share
    {
        facts.state(
            Cause::RequestExceedsDevice,
            Certainty::Likely,
            format!("The tensor alone needs {request}; TensorFlow may use at most {share} of the GPU."),
        );
    }
}

/// The size of a tensor; as large as can be written down where the product is larger still.
fn tensor_bytes(shape: &str, type_name: &str) -> Option<Bytes> {
    let element: u64 = match type_name {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e4m3fn" | "float8_e5m2" => 1,
        "half" | "bfloat16" | "int16" | "uint16" | "float16" => 2,
        "float" | "float32" | "int32" | "uint32" | "qint32" => 4,
        "double" | "float64" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    };
    let dimensions = shape.split(',').map(str::trim).filter(|dimension| !dimension.is_empty());
    let bytes = dimensions
        .map(|dimension| dimension.parse::<u64>().ok())
        .try_fold(element, |product, dimension| Some(product.saturating_mul(dimension?)))?;
    Some(Bytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn the_shape_and_type_are_the_request() {
        let facts = facts_in(
            "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[64,256,256,128] and\ntype float on /job:localhost/replica:0/task:0/device:GPU:2 by allocator GPU_2_bfc",
        )
        .unwrap();
        assert_eq!(facts.request, Some(Bytes::gib(2)));
        assert_eq!((facts.device, facts.resource), (Some(DeviceIndex(2)), Resource::Device));
        assert!(facts.statements.is_empty());
    }

    #[test]
    fn without_a_type_the_request_is_unknown() {
        let facts =
            facts_in("ResourceExhaustedError: OOM when allocating tensor with shape[8,1024]").unwrap();
        assert_eq!(
            (facts.framework_id(), facts.request, facts.resource),
            ("tensorflow", None, Resource::Unknown)
        );
    }

    #[test]
    fn an_overflowing_shape_saturates_and_a_negative_one_is_a_bug() {
        assert_eq!(tensor_bytes("4294967296,4294967296,8", "double"), Some(Bytes::MAX));
        assert_eq!(tensor_bytes("", "int32"), Some(Bytes::new(4)));
        assert_eq!(tensor_bytes("2", "string"), None);
        let facts = facts_in("OOM when allocating tensor with shape[-2147483648,4] and type float").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::IntegerOrShapeBug);
    }

    #[test]
    fn a_tensor_on_the_cpu_is_about_host_memory() {
        let facts = facts_in("Resource exhausted: OOM when allocating tensor with shape[1,416,416,3] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu").unwrap();
        assert_eq!((facts.resource, facts.statements[0].cause), (Resource::Host, Cause::HostMemory));
    }

    #[test]
    fn a_tensor_larger_than_the_share_is_too_large() {
        let facts = facts_in("Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 2048 MB memory) -> physical GPU\nOOM when allocating tensor with shape[1024,1024,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::RequestExceedsDevice);
    }

    #[test]
    fn the_dump_above_a_tensor_is_read() {
        let facts = facts_in("I tensorflow/core/common_runtime/bfc_allocator.cc:1010] Stats: \nLimit:                 8589934592\nInUse:                 8489934592\nMaxInUse:              8489934592\n\nW tensorflow/core/framework/op_kernel.cc:1753] OP_REQUIRES failed at transpose_op.cc:198 : Resource exhausted: OOM when allocating tensor with shape[4,2048,128,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc").unwrap();
        assert_eq!((facts.request, facts.live), (Some(Bytes::mib(512)), Some(Bytes::new(8_489_934_592))));
        assert_eq!(facts.statements[0].cause, Cause::LiveDataFillsDevice);
    }

    #[test]
    fn an_exhausted_resource_of_another_program_is_not_taken() {
        let facts = facts_in("ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 10.0MB memory on GPU 0, available memory is only 5.0MB.").unwrap();
        assert_ne!(facts.framework_id(), "tensorflow");
    }

    #[test]
    fn a_small_fraction_is_the_limit() {
        let text = "ResourceExhaustedError: OOM when allocating tensor with shape[1,64,300,800]\nconfig.GPU_MEMORY_FRACTION = 0.05";
        let stated = &facts_in(text).unwrap().statements[0];
        assert_eq!((stated.cause, stated.leads), (Cause::ArtificialLimit, true));
    }
}
