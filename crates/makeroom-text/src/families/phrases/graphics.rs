//! Graphics and OpenCL: Vulkan, Direct3D, Metal, `OpenGL`, renderers, encoders, game engines. Most give a status and no
//! figures.

use makeroom_core::Framework;
use makeroom_explain::Cause::{
    ArtificialLimit, HostMemory, LiveDataFillsDevice, OtherProcesses, RequestExceedsDevice,
    SharedMemoryOrKernelResource,
};

use super::{Phrase, family};

const ONE_BUFFER: &str = "The buffer is larger than the device allows in one allocation (CL_DEVICE_MAX_MEM_ALLOC_SIZE, often a quarter of its memory).";
const SESSIONS: &str = "NVENC returns this status when the driver's limit on concurrent encode sessions was reached or, less often, when memory runs out.";

pub(super) const ROWS: &[Phrase] = &[
    // OpenCL.
    Phrase::device(
        Framework::OpenCl,
        &["but max alloc size"],
        r"requested (?P<request>\d+) (?P<request_unit>bytes),? but max alloc size (?:supported by device )?is (?P<limit>\d+) (?P<limit_unit>bytes)",
    )
    .certain(
        ArtificialLimit,
        "The driver allows at most {limit} in one allocation, but {request} was requested; the size of the GPU's memory does not matter.",
    ),
    Phrase::device(
        Framework::OpenCl,
        &["CL_INVALID_BUFFER_SIZE", "clCreateBuffer", "opencl error"],
        r"CL_INVALID_BUFFER_SIZE|clCreateBuffer.{0,24}?\W-61\b|opencl error\W{0,4}(?:code )?-61\b",
    )
    .leads(RequestExceedsDevice, ONE_BUFFER),
    Phrase::device(
        Framework::OpenCl,
        &["MEM_OBJECT_ALLOCATION_FAILURE", "clCreate", "clEnqueue", "clFinish", "clFlush", "opencl error"],
        r"MEM_OBJECT_ALLOCATION_FAILURE|\bcl(?:Create|Enqueue|Finish|Flush)\w*.{0,40}?\W-4\b|opencl error\W{0,4}(?:code )?-4\b",
    ),
    Phrase::either(Framework::PyTorchXpu, &["OUT_OF_RESOURCES"], r"(?:UR|ZE)_RESULT_ERROR_OUT_OF_RESOURCES")
        .near(r"\btorch[/\\.]|ComfyUI")
        .possible(
            SharedMemoryOrKernelResource,
            "The Level Zero driver returns this status when a kernel needs too many registers or too much local memory, when device memory is full, or after the device was lost.",
        ),
    Phrase::either(
        Framework::OpenCl,
        &["OUT_OF_RESOURCES", "clEnqueue", "clFinish", "clFlush", "(Out of resources)", "out of GPU resources", "opencl error", "Kernel: OutOfResources"],
        r"(?:CL|PI_ERROR|UR_RESULT_ERROR|ZE_RESULT_ERROR)_OUT_OF_RESOURCES|\bcl[A-Z]\w+ failed: OUT_OF_RESOURCES|\bcl(?:Enqueue|Finish|Flush)\w*.{0,40}?\W-5\b|opencl error\W{0,4}(?:code )?-5\b|NDRangeKernel: OutOfResources|error(?: code)? -5 \(Out of resources\)|out of GPU resources",
    )
    .possible(
        SharedMemoryOrKernelResource,
        "The driver returns this status when a kernel needs too many registers or too much local memory, when device memory is full, or after a kernel crash.",
    ),
    Phrase::either(Framework::OpenCl, &["clCreate", "clEnqueue", "clBuildProgram", "opencl error"], r"\bcl(?:Create|Enqueue|Build)\w*.{0,40}?\W-6\b|opencl error\W{0,4}(?:code )?-6\b")
        .leads(
            HostMemory,
            "Error -6 is OpenCL's out-of-host-memory status (CL_OUT_OF_HOST_MEMORY), which drivers also use for some other failures.",
        ),
    Phrase::device(Framework::OpenCl, &["clCreateBuffer failed", "clCreateImage failed"], r"clCreate(?:Buffer|Image)\w* failed")
        .unless(r"INVALID_(?:VALUE|CONTEXT|HOST_PTR|OPERATION)|-3\d\b|-5\d\b"),
    // Level Zero prints the number of the status.
    Phrase::device(Framework::Sycl, &["0x70000003", "1879048195"], r"0x70000003|\b1879048195\b"),
    Phrase::device(
        Framework::Sycl,
        &["ERROR_OUT_OF_DEVICE_MEMORY"],
        r"(?:PI_ERROR|UR_RESULT_ERROR|ZE_RESULT_ERROR)_OUT_OF_DEVICE_MEMORY",
    ),
    // Vulkan and what is built on it.
    Phrase::device(Framework::Vulkan, &["vkAllocateMemory"], r"vkAllocateMemory\s*faile?d?:? *-10\b|\bvkAllocateMemory\b.{0,160}\b(?:err(?:or)?[ _]?(?:code)?|code|result|status|VkResult)\W{0,3}(?:is |of )?-10\b|TOO_MANY_OBJECTS")
        .leads(
            ArtificialLimit,
            "The driver's maximum number of allocations was reached (VK_ERROR_TOO_MANY_OBJECTS); memory may still be free.",
        ),
    Phrase::device(
        Framework::Vulkan,
        &[
            "VK_ERROR_OUT_OF_DEVICE_MEMORY",
            "ErrorOutOfDeviceMemory",
            "OUT_OF_DEVICE_MEMORY",
            "vkAllocateMemory",
            "vkCreate",
        ],
        r"OUT_OF_DEVICE_MEMORY|OutOfDeviceMemory|vk(?:AllocateMemory|Create\w+)\s*faile?d?:? *-2\b|\bvk(?:AllocateMemory|Create\w+)\b.{0,160}\b(?:err(?:or)?[ _]?(?:code)?|code|result|status|VkResult)\W{0,3}(?:is |of )?-2\b|vkAllocateMemory\b.{0,30}\b(?:failed|error)\b",
    ),
    Phrase::device(
        Framework::Wgpu,
        &["Not enough memory left", "Out of Memory"],
        r"Not enough memory left\b|wgpu error: Out of Memory",
    )
        .near(r"wgpu|naga|webgpu|burn|bevy"),
    // Direct3D and OpenGL.
    Phrase::device(Framework::Unreal, &["Out of video memory"], r"Out of video memory trying to allocate"),
    Phrase::device(Framework::Direct3d, &["E_OUTOFMEMORY", "8007000E"], r"E_OUTOFMEMORY|0x8007000E|HRESULT\W{0,4}(?:is |of )?8007000E")
        .near(r"D3D|Direct3D|DXGI|DirectML|\bGPU\b|video memory"),
    Phrase::device(
        Framework::Direct3d,
        &["more video memory than", "ran out of video memory", "run out of video memory", "not enough video memory", "insufficient video memory"],
        r"\b(?:using|used|needs?|requires?) more video memory than\b|\b(?:ran|has run|have run) out of video memory\b|\b(?:not enough|insufficient) video memory\b",
    )
    .unless(r"\b(?:if (?:you|your|there)|may|might|could|avoid\w*|prevent\w*|would)\b"),
    Phrase::device(
        Framework::DirectMl,
        &["enough GPU video memory"],
        r"(?:Could not allocate tensor with (?P<request>\d+) (?P<request_unit>bytes)\. )?There is not enough GPU video memory",
    ),
    Phrase::device(Framework::OpenGl, &["GL_OUT_OF_MEMORY"], r"GL_OUT_OF_MEMORY"),
    // Metal.
    Phrase::device(
        Framework::Metal,
        &["Invalid buffer size"],
        r"Invalid buffer size: (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]?i?B)",
    )
    .leads(RequestExceedsDevice, "{request} in one buffer is more than Metal allows on this machine."),
    // llama.cpp on Metal, before it was given up for the working set.
    Phrase::device(
        Framework::LlamaCpp,
        &["ggml_metal_add_buffer", "ggml_metal_log_allocated_size"],
        r"\(\s*(?P<live>[\d.]+) */.*greater than the recommended max working set|ggml_metal_add_buffer: allocated .*\(\s*(?P<used>[\d.]+) */\s*$",
    )
    .near(r"GGML_ASSERT|error|failed|greater than the recommended")
    .figures_near(r"recommendedMaxWorkingSetSize *= *(?P<limit>[\d.]+) (?P<limit_unit>MB)")
    .leads(
        LiveDataFillsDevice,
        "The buffers exceed the working set of {limit} that Metal recommends on this machine.",
    ),
    Phrase::device(
        Framework::Metal,
        &["CallbackErrorOutOfMemory", "MTLCommandBufferErrorOutOfMemory"],
        r"ErrorOutOfMemory",
    ),
    Phrase::device(
        Framework::Mlx,
        &["maximum allowed buffer size"],
        r"allocate (?P<request>\d+) (?P<request_unit>bytes) which is greater than the maximum allowed buffer size of (?P<limit>\d+) (?P<limit_unit>bytes)",
    )
    .likely(RequestExceedsDevice, "{request} in one buffer is more than the {limit} that Metal allows on this machine."),
    Phrase::device(Framework::Mlx, &["[metal::malloc] Resource limit"], r"\[metal::malloc\] Resource limit \((?P<count>\d+)\) exceeded")
        .likely(
            ArtificialLimit,
            "The process has {count} Metal buffers, the most that the driver allows; the memory need not be full.",
        ),
    Phrase::device(Framework::Metal, &["total bytes of NDArray"], r"total bytes of NDArray > 2\*\*32")
        .likely(RequestExceedsDevice, "A tensor is larger than the 4 GiB that this version of Metal Performance Shaders allows in one buffer."),
    // Renderers.
    Phrase::host(Framework::OptiX, &["OPTIX_ERROR_HOST_OUT_OF_MEMORY"], r"OPTIX_ERROR_HOST_OUT_OF_MEMORY")
        .likely(HostMemory, "OptiX returned its out-of-host-memory status."),
    Phrase::device(Framework::OptiX, &["OPTIX_ERROR_DEVICE_OUT_OF_MEMORY"], r"OPTIX_ERROR_DEVICE_OUT_OF_MEMORY"),
    Phrase::either(Framework::Blender, &["System is out of GPU"], r"System is out of GPU and shared host memory"),
    Phrase::device(
        Framework::Blender,
        &["out of memory in cuCtxCreate", "out of memory in hipCtxCreate"],
        r"Out of memory in (?:cu|hip)CtxCreate",
    )
        .leads(
            OtherProcesses,
            "The driver had no memory for a context. This process holds nothing yet, so other processes hold the GPU's memory.",
        ),
    Phrase::device(
        Framework::Blender,
        &["System is out of GPU", "Out of memory in cu", "Out of memory in hip"],
        r"System is out of GPU memory|Out of memory in (?:cu|hip)(?:Mem|Array|Tex|Launch|Module|Stream)\w*",
    ),
    // Encoders.
    Phrase::device(Framework::Nvenc, &["NV_ENC_ERR_OUT_OF_MEMORY"], r"NV_ENC_ERR_OUT_OF_MEMORY")
        .near(r"EncodeSession")
        .leads(ArtificialLimit, SESSIONS),
    Phrase::device(Framework::Nvenc, &["EncodeSessionEx"], r"EncodeSessionEx.*(?:memory|\(10\)|: ?10\b|(?:error|status|code)\W{1,3}10\b|client key)").leads(ArtificialLimit, SESSIONS),
    Phrase::device(Framework::Nvenc, &["simultaneous encoding is limited"], r"simultaneous encoding is limited up to")
        .likely(
            ArtificialLimit,
            "The driver limits the number of concurrent NVENC sessions on this GPU, and the limit was reached.",
        ),
    Phrase::device(
        Framework::Nvenc,
        &["Buffer failed: out of memory (10)"],
        r"Create\w*Buffer failed: out of memory \(10\)",
    ),
];

family!();

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;
    use makeroom_explain::{Cause, Certainty};

    use crate::facts::Resource;
    use crate::find::facts_in;

    #[test]
    fn an_encoder_that_gets_no_session() {
        let text = "[h264_nvenc @ 0x55f4] OpenEncodeSessionEx failed: out of memory (10): (no details)\n[h264_nvenc @ 0x55f4] No capable devices found";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework_id(), "nvenc");
        let stated = &facts.statements[0];
        assert!(stated.leads && stated.certainty == Certainty::Possible);
        assert_eq!(stated.cause, Cause::ArtificialLimit);
        assert!(facts_in("OpenEncodeSessionEx failed: unsupported device (2)").is_none());
        let text =
            "encoder.nvEncOpenEncodeSessionEx(&params, &encoder) returned error 10 for the fourth stream";
        assert_eq!(facts_in(text).unwrap().framework_id(), "nvenc");
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
            assert_eq!((facts.framework_id(), facts.resource), (framework, resource));
            assert!(facts.statements.is_empty());
        }
    }

    #[test]
    fn statuses_for_device_memory() {
        for (text, framework) in [
            (
                "VK: VK_ERROR_OUT_OF_DEVICE_MEMORY - vkAllocateMemory( device, &info, NULL, &memory )",
                "vulkan",
            ),
            ("vkAllocateMemory failed -2", "vulkan"),
            ("err:   DxvkMemoryAllocator: Memory allocation failed", "vulkan"),
            ("clEnqueueNDRangeKernel failed: -4", "opencl"),
            ("pyopencl: clFinish failed: MEM_OBJECT_ALLOCATION_FAILURE", "opencl"),
            ("OpenCL error -4", "opencl"),
            ("zeMemAllocDevice failed with 0x70000003", "sycl"),
            ("terminate called: vk::Device::allocateMemory: ErrorOutOfDeviceMemory", "vulkan"),
            ("Fatal error: Out of video memory trying to allocate a rendering resource", "unreal"),
            ("D3D12 CreateCommittedResource failed with error E_OUTOFMEMORY", "direct3d"),
            ("wgpu error: Validation Error\nCaused by:\n  Not enough memory left.", "wgpu"),
            (
                "Error CL_MEM_OBJECT_ALLOCATION_FAILURE when calling clEnqueueNDRangeKernel for kernel 0.",
                "opencl",
            ),
            ("OpenCL Error: clEnqueueWriteBuffer -4", "opencl"),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), (framework, Resource::Device), "{text}");
            assert!(facts.statements.is_empty(), "{text}");
        }
    }

    #[test]
    fn caps_on_one_allocation() {
        let facts = facts_in("clCreateBuffer(-61): no memory for the table").unwrap();
        assert!(facts.statements[0].leads);
        assert_eq!(facts.statements[0].cause, Cause::RequestExceedsDevice);
        let facts = facts_in("[GPU] Exceeded max size of memory object allocation: requested 4294967296 bytes, but max alloc size supported by device is 1073741824 bytes.").unwrap();
        assert_eq!(facts.request, Some(Bytes::gib(4)));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::ArtificialLimit, Certainty::Certain)
        );
        let facts = facts_in("RuntimeError: Invalid buffer size: 24.00 GB").unwrap();
        assert_eq!(
            (facts.request, facts.statements[0].cause),
            (Some(Bytes::gib(24)), Cause::RequestExceedsDevice)
        );
        let facts = facts_in("[metal::malloc] Attempting to allocate 4294967296 bytes which is greater than the maximum allowed buffer size of 1073741824 bytes.").unwrap();
        assert_eq!((facts.framework_id(), facts.statements[0].cause), ("mlx", Cause::RequestExceedsDevice));
        let facts = facts_in("RuntimeError: [metal::malloc] Resource limit (499000) exceeded.").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
        let facts = facts_in("vkAllocateMemory failed -10").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
    }

    #[test]
    fn ambiguous_and_other_statuses() {
        let facts = facts_in("clFinish(-5): kernel gave up").unwrap();
        assert_eq!((facts.resource, facts.statements[0].certainty), (Resource::Unknown, Certainty::Possible));
        assert!(facts_in("DXGI_ERROR_DEVICE_REMOVED: the GPU device instance has been suspended").is_none());
        let facts = facts_in("clBuildProgram failed: -6").unwrap();
        assert_eq!((facts.statements[0].cause, facts.statements[0].leads), (Cause::HostMemory, true));
        for text in ["clEnqueueWriteBuffer(-38)", "clEnqueueNDRangeKernel failed: -54", "OpenCL error -45"] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }
}
