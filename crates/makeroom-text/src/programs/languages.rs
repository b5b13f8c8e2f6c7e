//! Programs that are known only by their language: MATLAB, R, .NET, browsers, Lua. Their runtimes free GPU memory in
//! their own ways, and PyTorch's advice is Python. Also ranks of an MPI job, whatever the language.

use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Fix};

use super::Program;
use super::apis::{DIRECT3D, DIRECTML};
use super::graphics::{VULKAN, WGPU};
use super::lever::{self, Lever};
use super::plain::PLAIN;
use super::pytorch::PYTORCH;
use crate::knobs;
use crate::language::Language;
use crate::situation::Situation;

/// Programs whose remedies are those of an API or of Python, so that a language's own come first.
const GENERIC: [&Program; 6] = [&PLAIN, &PYTORCH, &DIRECT3D, &VULKAN, &WGPU, &DIRECTML];

/// The steps in the language of a program that nothing else is known of; `None` where another table decides.
pub(super) fn advise(situation: &Situation<'_>, cause: Cause) -> Option<Vec<Fix>> {
    if !GENERIC.iter().any(|program| situation.program.is(program)) {
        return None;
    }
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let levers = match situation.language {
        Language::Matlab => MATLAB,
        Language::R => R,
        Language::DotNet if says(&["TorchSharp", "libtorch", "PyTorch"]) => TORCH_SHARP,
        Language::DotNet => DOT_NET,
        Language::JavaScript if says(&["WebLLM", "web-llm", "llm_chat", "mlc"]) => WEB_LLM,
        Language::JavaScript if says(&["tfjs", "tf.tidy", "tensorflow.js", "tfjs-"]) => TFJS,
        Language::JavaScript if says(&["transformers.js", "onnxruntime-web", "onnx"]) => ONNX_WEB,
        Language::JavaScript => BROWSER,
        Language::Julia => JULIA,
        _ => return None,
    };
    let steps = match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice => {
            let mut steps = knobs::steps(situation);
            steps.extend(lever::steps(situation, cause, levers));
            steps
        }
        Cause::Leak => lever::steps(situation, Cause::LiveDataFillsDevice, levers),
        _ => lever::steps(situation, cause, levers),
    };
    Some(steps)
}

/// The steps against a leak, where the language has its own way to free GPU memory.
pub(crate) fn leak(situation: &Situation<'_>) -> Option<Vec<Fix>> {
    advise(situation, Cause::Leak).filter(|steps| !steps.is_empty())
}

const MATLAB: &[Lever] = &[
    Lever::new(
        "use smaller mini-batches",
        "trainingOptions('adam', 'MiniBatchSize', 8)   (predict(net, x, 'MiniBatchSize', 8))",
    )
    .only(|situation| {
        ["trainNetwork", "trainnet", "trainingOptions", "MiniBatchSize", "dlarray"]
            .iter()
            .any(|words| situation.settings.mentions(words))
    }),
    Lever::new(
        "process the data in blocks that fit in the free memory, and gather each result",
        "n = floor(0.4 * gpuDevice().AvailableMemory / (4 * size(x,2))); for k = 1:n:size(x,1), r = k:min(k+n-1,end); y(r,:) = gather(f(gpuArray(x(r,:)))); end",
    ),
    Lever::new("clear the GPU before the run: arrays from earlier runs stay on it", "reset(gpuDevice(1))")
        .unless_said(&["reset(gpuDevice"]),
    Lever::new("use single precision: doubles take twice the memory", "x = gpuArray(single(x));")
        .unless_said(&["single(", "'single'"]),
];

const R: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "dataloader(ds, batch_size = {to})",
        &["batch_size", "batch size"],
    )
    .only(|situation| {
        situation.is_training()
            || ["batch", "dataloader"].iter().any(|words| situation.settings.mentions(words))
    }),
    Lever::new(
        "run the garbage collector in the loop: R does not see GPU memory, and frees tensors only during garbage collection",
        "gc(); torch::cuda_empty_cache()",
    )
    .unless_said(&["cuda_empty_cache"]),
    Lever::new("run the model without gradients", "with_no_grad({ model(x) })")
        .unless_said(&["with_no_grad"]),
    Lever::new("move results off the GPU before keeping them", "as_array(y$cpu())"),
];

const TORCH_SHARP: &[Lever] = &[
    Lever::new(
        "free the tensors of each batch: .NET's collector does not see GPU memory",
        "using (var scope = torch.NewDisposeScope()) { … }",
    )
    .unless_said(&["NewDisposeScope"]),
    Lever::new("run the garbage collector after each batch", "GC.Collect(); GC.WaitForPendingFinalizers();")
        .unless_said(&["GC.Collect"]),
    Lever::new("turn off gradients if you are not training", "using (torch.no_grad()) { … }")
        .unless_said(&["no_grad"]),
];

const DOT_NET: &[Lever] = &[
    Lever::new(
        "dispose of GPU buffers when you are done with them: .NET's collector does not see GPU memory",
        "using var buffer = …;   (or buffer.Dispose())",
    ),
    Lever::new(
        "run the garbage collector after each batch, to free unreferenced buffers",
        "GC.Collect(); GC.WaitForPendingFinalizers();",
    )
    .unless_said(&["GC.Collect"]),
];

const JULIA: &[Lever] = &[
    Lever::new(
        "free arrays that are no longer used: the garbage collector does not see GPU memory",
        "GC.gc(true); CUDA.reclaim()",
    )
    .unless_said(&["CUDA.reclaim()"]),
    Lever::new("cap the pool, so that garbage is collected earlier", "JULIA_CUDA_HARD_MEMORY_LIMIT=80%")
        .unless_said(&["MEMORY_LIMIT"])
        .variable(),
    Lever::new("use 32-bit numbers", "cu(x)   # Float32").unless_said(&["Float32"]),
];

const WEB_LLM: &[Lever] = &[
    Lever::new(
        "load the variant with a context of 1024 tokens and 4-bit weights: most models have one",
        "CreateMLCEngine(\"Llama-3.2-1B-Instruct-q4f16_1-MLC\")   (or an id that ends in -1k)",
    ),
    Lever::lower(
        "use a shorter context{from}",
        "CreateMLCEngine(model, config, { context_window_size: {to} })",
        &["context_window_size", "maxWindowLength"],
        1024,
    )
    .at_least(1024, 1024),
];

const TFJS: &[Lever] = &[
    Lever::new("free the tensors of each step", "tf.tidy(() => model.predict(x))").unless_said(&["tf.tidy("]),
    Lever::new("delete unused textures immediately", "tf.env().set('WEBGL_DELETE_TEXTURE_THRESHOLD', 0)")
        .unless_said(&["DELETE_TEXTURE_THRESHOLD"]),
    Lever::new("store numbers in 16-bit precision", "tf.env().set('WEBGL_FORCE_F16_TEXTURES', true)")
        .unless_said(&["FORCE_F16"]),
];

const ONNX_WEB: &[Lever] = &[
    Lever::new(
        "load the weights in 4-bit precision",
        "pipeline(task, model, { device: 'webgpu', dtype: 'q4' })",
    )
    .unless_said(&["'q4'", "\"q4\"", "q4f16"]),
    Lever::new("run the model on the CPU", "pipeline(task, model, { device: 'wasm' })")
        .unless_said(&["'wasm'"]),
];

fn is_three(situation: &Situation<'_>) -> bool {
    ["three.js", "three.module", "THREE.", "react-three"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

const BROWSER: &[Lever] = &[
    Lever::new(
        "dispose of objects that you remove from the scene: three.js keeps their textures on the GPU until you do",
        "texture.dispose(); material.dispose(); geometry.dispose()",
    )
    .only(is_three)
    .unless_said(&[".dispose()"]),
    Lever::new(
        "free textures and buffers that are no longer used",
        "gl.deleteTexture(texture)   (WebGPU: texture.destroy())",
    )
    .only(|situation| !is_three(situation)),
    Lever::new(
        "scale textures to 1024 pixels a side: a 4096 x 4096 RGBA texture takes 64 MB, and a third more with mipmaps",
        "magick texture.png -resize 1024x1024 texture.png",
    ),
    Lever::new(
        "render with a pixel ratio of 1 and without multisampling",
        "renderer.setPixelRatio(1); new THREE.WebGLRenderer({ antialias: false })",
    )
    .only(is_three),
    Lever::new(
        "use a 64-bit browser: a 32-bit process has 2 to 4 GB of address space",
        "about:support   (Chrome: chrome://version)",
    )
    .only(|situation| {
        ["32bit", "32-bit", "32 bit", "x86 "].iter().any(|words| situation.settings.mentions(words))
    }),
];

/// How ranks of one job come to share a GPU, and how each gets its own.
pub(crate) fn one_gpu_per_rank(situation: &Situation<'_>) -> Option<Fix> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    let is_amd = situation.environment.maker == Maker::Amd;
    if says(&["srun", "slurm", "sbatch", "gpu-bind", "--ntasks"])
        && says(&["mpi", "rank", "srun", "gpu-bind", "ntasks"])
    {
        return Some(
            Fix::new("give each rank its own GPU: ranks that are bound to the same one share its memory")
                .command("srun --ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=single:1 …"),
        );
    }
    let variable = if is_amd { "ROCR_VISIBLE_DEVICES" } else { "CUDA_VISIBLE_DEVICES" };
    says(&["mpirun", "mpiexec", "openmpi", "MPI_", "MPI rank", "mpich"]).then(|| {
        Fix::new("give each rank its own GPU: ranks without a binding all use GPU 0")
            .command(format!("mpirun … bash -c '{variable}=$OMPI_COMM_WORLD_LOCAL_RANK exec ./program'"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::advice;
    use super::*;

    fn commands(text: &str, cause: Cause) -> String {
        let (_, steps) = advice(text, cause);
        steps.into_iter().filter_map(|fix| fix.command).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_language_frees_memory_in_its_own_way() {
        for (text, command) in [
            ("Error using gpuArray\nOut of memory on device.", "gpuDevice().AvailableMemory"),
            (
                "Error in (function (self) : CUDA out of memory. Tried to allocate 30.00 MiB (GPU 0; 4.00 GiB total capacity; 3.10 GiB already allocated; 5.00 MiB free; 3.20 GiB reserved in total by PyTorch)",
                "cuda_empty_cache()",
            ),
            (
                "TorchSharp\nSystem.Runtime.InteropServices.ExternalException: CUDA out of memory. Tried to allocate 30.00 MiB (GPU 0; 4.00 GiB total capacity; 3.10 GiB already allocated; 5.00 MiB free; 3.20 GiB reserved in total by PyTorch)",
                "NewDisposeScope",
            ),
            ("THREE.WebGLRenderer\nGL ERROR :GL_OUT_OF_MEMORY : glTexStorage2D", "texture.dispose()"),
        ] {
            let steps = commands(text, Cause::LiveDataFillsDevice);
            assert!(steps.contains(command), "{text}: {steps}");
            assert!(!steps.contains("with torch.") && !steps.contains("Textures ="), "{text}: {steps}");
            assert!(!commands(text, Cause::Leak).contains("torch.cuda.memory"), "{text}");
        }
    }
}
