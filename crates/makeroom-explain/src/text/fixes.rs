//! The steps for each finding, and the attempts that cannot help.
//!
//! A program's own options come first ([`super::programs`]); here are the steps that hold for any program. A step
//! is given only where it can help: with settings that exist on the platform and in the version that wrote the
//! text, and that are not set already.

use makeroom_core::Bytes;

use super::environment::System;
use super::facts::{Allocator, Facts, Resource};
use super::judge::Account;
use super::programs::Work;
use super::searched::contains_ignoring_case;
use super::situation::Situation;
use crate::advice::{self, Maker};
use crate::thresholds::{CONTEXT_TYPICAL, LARGEST_GPU};
use crate::{Cause, Certainty, Finding, Fix};

/// More steps than this are not read.
const MOST_FIXES: usize = 5;
/// Only the largest of other processes are worth stopping.
const MOST_STOPPED: usize = 3;
/// A request of more chunks than this is a mistake rather than work to be split.
const MOST_CHUNKS: u64 = 16;
/// A step that frees less than this is not worth a figure.
const LEAST_FREED: Bytes = Bytes::mib(64);

/// Fills in the steps of each finding.
pub(crate) fn attach(findings: &mut [Finding], situation: &Situation<'_>) {
    for finding in findings.iter_mut() {
        let is_open = matches!(finding.cause, Cause::Undetermined | Cause::None);
        if finding.fixes.is_empty() && !is_open {
            finding.fixes = for_cause(finding.cause, situation);
        }
        tidy(&mut finding.fixes);
    }
}

/// The steps for a cause: the program's own and the general ones, in the order in which they help.
pub(crate) fn for_cause(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    let own = (situation.program.advise)(situation, cause);
    match cause {
        // The memory is somewhere else; a program's own options only ask for less of the rest.
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::NonFrameworkOverhead => {
            let batch = smaller_batch(situation).action;
            let is_said_better = |fix: &Fix| !own.is_empty() && fix.action == batch;
            let mut fixes = general(cause, situation);
            fixes.retain(|fix| !is_said_better(fix));
            fixes.into_iter().chain(own).collect()
        }
        _ if own.is_empty() => general(cause, situation),
        Cause::Fragmentation => general(cause, situation).into_iter().chain(own).collect(),
        Cause::LiveDataFillsDevice => allocator_first(situation).into_iter().chain(own).collect(),
        // A request this large may be a mistake, which no option cures.
        Cause::RequestExceedsDevice if is_many_times_the_device(situation.facts) => {
            general(cause, situation).into_iter().chain(own.into_iter().take(2)).collect()
        }
        Cause::RequestExceedsDevice => own.into_iter().take(3).chain(general(cause, situation)).collect(),
        _ => own,
    }
}

/// Whether a request is so much larger than the device that splitting the work is no way out.
fn is_many_times_the_device(facts: &Facts) -> bool {
    let Some(request) = facts.request else { return false };
    facts.total.map_or(request >= LARGEST_GPU, |total| request.get() / total.get().max(1) >= MOST_CHUNKS)
}

/// Most effective first where that is known; no figure that means nothing; no step twice.
fn tidy(fixes: &mut Vec<Fix>) {
    for fix in fixes.iter_mut() {
        fix.frees = fix.frees.filter(|&bytes| bytes >= LEAST_FREED);
    }
    fixes.sort_by_key(|fix| std::cmp::Reverse(fix.frees));
    let mut seen: Vec<Fix> = Vec::new();
    fixes.retain(|fix| {
        let is_new = seen.iter().all(|known| {
            known.action != fix.action && (fix.command.is_none() || known.command != fix.command)
        });
        seen.push(fix.clone());
        is_new
    });
    fixes.truncate(MOST_FIXES);
}

fn general(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    match cause {
        Cause::Fragmentation => fragmentation(situation),
        Cause::LiveDataFillsDevice => live_data(situation),
        Cause::OtherProcesses | Cause::HiddenHolder => others(cause, situation),
        Cause::RequestExceedsDevice => request_too_large(situation),
        Cause::ArtificialLimit => limit(situation),
        Cause::Preallocation => preallocation(situation),
        Cause::NonFrameworkOverhead => overhead(situation),
        Cause::HostMemory => super::host_fixes::steps(situation),
        Cause::SharedMemoryOrKernelResource => kernel(situation.facts),
        Cause::Leak => advice::leak(),
        Cause::IntegerOrShapeBug => vec![
            Fix::new(
                "print the shape and data type just before the failing line: an index or a product of sizes overflowed",
            ),
            Fix::new(
                "run it once without asynchronous launches, so that the traceback names the failing call",
            )
            .command(situation.environment.export("CUDA_LAUNCH_BLOCKING=1")),
        ],
        Cause::CacheHeldByFramework => vec![advice::empty_other_cache()],
        Cause::Undetermined | Cause::None => Vec::new(),
    }
}

fn kernel(facts: &Facts) -> Vec<Fix> {
    let tiles = Fix::new("use smaller tiles: a smaller BLOCK size, or fewer pipeline stages")
        .command("triton.Config({'BLOCK_M': 64, 'BLOCK_N': 32}, num_stages=1)");
    let registers = Fix::new("launch fewer threads per block, or let the compiler use fewer registers")
        .command("nvcc -maxrregcount=64 …");
    if facts.quote.contains("shared") || facts.framework == "triton" {
        vec![tiles]
    } else {
        vec![registers, tiles]
    }
}

fn fragmentation(situation: &Situation<'_>) -> Vec<Fix> {
    let cached = situation.account.cached.unwrap_or(Bytes::ZERO);
    let mut fixes = Vec::new();
    match situation.facts.allocator {
        Allocator::Torch | Allocator::TorchWithoutExpandable => {
            fixes.extend(torch_fragmentation(situation, cached));
        }
        Allocator::Bfc => fixes.push(
            Fix::new("use CUDA's stream-ordered allocator instead of the framework's arena")
                .command(situation.environment.export("TF_GPU_ALLOCATOR=cuda_malloc_async"))
                .frees(cached),
        ),
        _ => {}
    }
    fixes.push(if situation.is_inference() {
        Fix::new("release the cache between requests, and keep input sizes to a few fixed shapes")
            .command("torch.cuda.empty_cache()")
    } else {
        Fix::new("pad batches to a few fixed lengths or image sizes, so that freed blocks fit again")
    });
    fixes
}

/// PyTorch's remedies for a fragmented cache, as far as the platform and the version have them.
fn torch_fragmentation(situation: &Situation<'_>, cached: Bytes) -> Vec<Fix> {
    let environment = situation.environment;
    if matches!(environment.maker, Maker::Intel | Maker::Apple) {
        return Vec::new();
    }
    let variable = environment.allocator_variable();
    let is_old = situation.facts.allocator == Allocator::TorchWithoutExpandable
        && environment.torch.is_none_or(|version| version < (2, 1));
    if !environment.has_expandable_segments() && !is_old || environment.system == System::Windows {
        let split = Fix::new(
            "keep PyTorch from splitting large blocks (expandable segments do not exist on this platform)",
        )
        .command(
            environment.export(&format!("{variable}=max_split_size_mb:512,garbage_collection_threshold:0.8")),
        )
        .frees(cached);
        return if situation.settings.mentions("max_split_size_mb:512") { Vec::new() } else { vec![split] };
    }
    if situation.is_expandable_on() {
        return Vec::new();
    }
    if !is_old {
        let command = environment.export(&format!("{variable}=expandable_segments:True"));
        return vec![Fix { command: Some(command), ..advice::expandable_segments() }.frees(cached)];
    }
    vec![
        Fix::new("update PyTorch to 2.1 or later and turn on expandable segments")
            .command(format!(
                "pip install --upgrade torch && {}",
                environment.export(&format!("{variable}=expandable_segments:True"))
            ))
            .frees(cached),
        Fix::new("without an update: keep PyTorch from splitting large blocks")
            .command(environment.export(&format!("{variable}=max_split_size_mb:512"))),
    ]
}

/// What costs nothing to try where the card is full: the allocator's own settings.
fn allocator_first(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut fixes = Vec::new();
    if facts.framework == "pytorch-mps" {
        fixes.push(watermark());
    }
    let can_be_in_pieces = situation
        .account
        .shortage()
        .is_some_and(|shortage| shortage.cached >= shortage.missing() && facts.allocator == Allocator::Torch);
    if can_be_in_pieces {
        fixes.extend(torch_fragmentation(situation, Bytes::ZERO).into_iter().take(1).map(|mut fix| {
            fix.action = format!("{}: worth trying first, it costs nothing", fix.action);
            fix
        }));
    }
    fixes
}

fn live_data(situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut fixes = allocator_first(situation);
    let is_torch = facts.framework.starts_with("pytorch");
    let own = smaller_batch(situation);
    if situation.is_inference() {
        fixes.push(own);
        if is_torch {
            fixes.push(
                Fix::new("load the weights in 16 bits, or in 4 bits")
                    .command("from_pretrained(…, torch_dtype=torch.bfloat16)   (or load_in_4bit=True)"),
            );
            fixes.push(
                Fix::new("run under inference mode, so that no activations are kept for gradients")
                    .command("with torch.inference_mode(): …"),
            );
        }
        return fixes;
    }
    fixes.push(own);
    if is_torch {
        fixes.extend(training_steps(situation));
    }
    fixes
}

/// What usually helps a training run, less what is on already.
pub(crate) fn training_steps(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if !settings.is_on(&[
        "--gradient_checkpointing",
        "gradient_checkpointing",
        "use_checkpoint",
        "--use_checkpoint",
    ]) {
        fixes.push(advice::checkpointing());
    }
    let is_half = settings.is_on(&["--fp16", "--bf16", "fp16", "bf16", "--amp", "--use_amp"])
        || [
            "mixed_precision=fp16",
            "mixed_precision=bf16",
            "mixed_precision fp16",
            "mixed_precision=\"fp16",
            "mixed_precision=\"bf16",
            "precision=16",
            "autocast",
        ]
        .iter()
        .any(|words| settings.mentions(words));
    if !is_half {
        fixes.push(advice::half_precision(situation.environment.maker));
    }
    if !["8bit", "8-bit", "adafactor", "paged_adam", "bnb"].iter().any(|words| settings.mentions(words))
        && situation.environment.maker == Maker::Nvidia
    {
        fixes.push(
            Fix::new("keep the optimizer state in 8 bits, a quarter of AdamW's size")
                .command("optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=…)"),
        );
    }
    fixes
}

fn watermark() -> Fix {
    Fix::new("release PyTorch's cache between runs, then lift its limit (the machine may swap)")
        .command("torch.mps.empty_cache()   (and: export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0)")
}

/// The batch that fits, or the memory that must go.
pub(crate) fn smaller_batch(situation: &Situation<'_>) -> Fix {
    let facts = situation.facts;
    if matches!(facts.framework, "cuda" | "hip" | "thrust") && !is_from_pytorch(facts) {
        return Fix::new(
            "process the data in at least 2 chunks, and free buffers before allocating the next ones",
        );
    }
    let is_training = situation.is_training();
    match situation.batch() {
        Some(batch) if batch > 1 => {
            let smaller = if is_training { situation.smaller_batch(batch) } else { situation.smaller(batch) };
            let accumulate = if is_training {
                format!(
                    ", and accumulate gradients over {} steps to keep the effective batch",
                    batch.div_ceil(smaller)
                )
            } else {
                String::new()
            };
            Fix::new(format!("reduce the batch size from {batch} to {smaller}{accumulate}"))
                .command(format!("batch_size={smaller}"))
        }
        Some(_) => {
            Fix::new("the batch size is already 1: halve the sequence length or the image size instead")
        }
        None => {
            let aim = situation
                .to_free()
                .map_or(String::new(), |bytes| format!(": at least {} must go", roughly(bytes)));
            let action = if is_training {
                format!("halve the batch size and accumulate gradients over 2 steps{aim}")
            } else {
                format!("halve the batch size, the sequence length or the image size{aim}")
            };
            let command = if is_training {
                "batch_size //= 2; gradient_accumulation_steps *= 2"
            } else {
                "batch_size //= 2"
            };
            Fix::new(action).command(command)
        }
    }
}

/// A size without more precision than a step needs: to a tenth of a gibibyte, or to 50 MiB, rounded up.
pub(crate) fn roughly(bytes: Bytes) -> String {
    if bytes >= Bytes::gib(1) {
        format!("{:.1} GiB", (bytes.get() as f64 / f64::from(1 << 30) * 10.0).ceil() / 10.0)
    } else {
        format!("{} MiB", bytes.get().div_ceil(50 << 20) * 50)
    }
}

fn others(cause: Cause, situation: &Situation<'_>) -> Vec<Fix> {
    let account = &situation.account;
    let siblings = account.sibling_contexts();
    if account.are_ranks() || (!siblings.is_empty() && siblings.len() == account.others.len()) {
        return sibling_ranks(account.others_bytes());
    }
    let mut others = account.others.clone();
    others.sort_by_key(|process| std::cmp::Reverse(process.bytes));
    let mut fixes: Vec<Fix> = others
        .iter()
        .take(MOST_STOPPED)
        .map(|process| {
            Fix::new(format!("stop process {} if it is yours; its unsaved work is lost", process.pid))
                .command(format!("kill {}", process.pid))
                .frees(process.bytes)
        })
        .collect();
    let unlisted = account.unlisted().map(|unlisted| unlisted - CONTEXT_TYPICAL);
    if fixes.is_empty() {
        let mut see = if cause == Cause::HiddenHolder {
            advice::find_hidden_holders()
        } else {
            list_holders(situation)
        };
        see.frees = unlisted.filter(|bytes| !bytes.is_zero());
        fixes.push(see);
    }
    fixes.extend(another_device(situation));
    if can_make_room_itself(account) {
        fixes.push(Fix { frees: None, ..smaller_batch(situation) });
    }
    fixes
}

/// Another device, by number where a table in the text shows one with room.
fn another_device(situation: &Situation<'_>) -> Option<Fix> {
    let environment = situation.environment;
    if is_without_cuda(situation.facts) {
        return None;
    }
    let any = advice::another_device(environment.maker, situation.facts.device)?;
    let assignment = any.command.as_deref()?.strip_prefix("export ")?;
    let Some((device, free)) = situation.emptier_device() else {
        return Some(Fix { command: Some(environment.export(assignment)), ..any });
    };
    let variable = assignment.split('=').next()?;
    Some(
        Fix::new(format!("or use GPU {device}, which has {free} free"))
            .command(environment.export(&format!("{variable}={device}"))),
    )
}

/// One device per rank.
pub(crate) fn sibling_ranks(held: Bytes) -> Vec<Fix> {
    vec![
        Fix::new("pin each rank to its own GPU before it touches CUDA")
            .command("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))")
            .frees(held),
        Fix::new("load checkpoints to the CPU: a checkpoint saved from GPU 0 reopens GPU 0 in every rank")
            .command("torch.load(path, map_location='cpu')"),
        Fix::new("or show each process only its own GPU")
            .command("CUDA_VISIBLE_DEVICES=$LOCAL_RANK python …"),
    ]
}

/// The command that lists the holders of device memory on this system.
pub(crate) fn list_holders(situation: &Situation<'_>) -> Fix {
    let environment = situation.environment;
    match (environment.system, environment.maker) {
        (System::Windows | System::Wsl, Maker::Nvidia) => Fix::new(
            "list the processes on the GPU and close the ones you do not need (browser, games, other Python)",
        )
        .command("nvidia-smi"),
        (System::Jetson, _) => {
            Fix::new("list the processes that share the board's memory").command("sudo tegrastats")
        }
        _ => advice::list_holders(environment.maker),
    }
}

/// Whether this process holds, or requests, enough that less of it would do.
fn can_make_room_itself(account: &Account<'_>) -> bool {
    let held = account.reserved.or(account.facts.live).unwrap_or(Bytes::ZERO);
    let free = account.facts.free.unwrap_or(Bytes::ZERO);
    let request = account.facts.request.unwrap_or(Bytes::MAX);
    account.missing().is_some_and(|missing| held >= missing) || free.share_of(request) >= 0.1
}

fn request_too_large(situation: &Situation<'_>) -> Vec<Fix> {
    let account = &situation.account;
    let request = account.facts.request.unwrap_or(Bytes::ZERO);
    let room = account.facts.total.map(|total| total - CONTEXT_TYPICAL);
    let shape = Fix::new(
        "print the shape of the tensor at the failing line: a request this large often comes from a shape that was not meant",
    );
    let chunks = room.filter(|room| !room.is_zero()).map(|room| request.get().div_ceil(room.get()));
    match chunks.filter(|&chunks| chunks > 1) {
        // So many chunks are not a plan.
        Some(chunks) if chunks > MOST_CHUNKS => vec![shape],
        Some(chunks) => {
            let split =
                format!("split the work into at least {chunks} chunks, or spread it over that many GPUs");
            vec![Fix::new(split), shape]
        }
        None => vec![
            shape,
            Fix::new("request less at once: split the work into at least 2 chunks")
                .command("batch_size //= 2"),
        ],
    }
}

fn limit(situation: &Situation<'_>) -> Vec<Fix> {
    let (account, facts) = (&situation.account, situation.facts);
    if !facts.framework.starts_with("pytorch") {
        let value = facts.limit.map_or(String::new(), |limit| format!(" above {limit}"));
        return vec![Fix::new(format!("raise the limit that the program was given{value}"))];
    }
    let held = account.reserved.or(facts.live).unwrap_or(Bytes::ZERO);
    let needed = facts.request.map(|request| held + request);
    let fraction = match (needed, facts.total) {
        (Some(needed), Some(total)) => (needed.share_of(total) * 1.05).clamp(0.01, 1.0),
        _ => 1.0,
    };
    let mut fix = Fix::new("raise the limit, or remove the call that sets it")
        .command(format!("torch.cuda.set_per_process_memory_fraction({fraction:.2})"));
    fix.frees = match (facts.total, facts.limit) {
        (Some(total), Some(limit)) => Some((total - limit).min(facts.free.unwrap_or(Bytes::MAX))),
        _ => None,
    };
    vec![fix]
}

fn preallocation(situation: &Situation<'_>) -> Vec<Fix> {
    let environment = situation.environment;
    match situation.facts.framework {
        "jax" => vec![
            Fix::new("let JAX allocate memory as it needs it")
                .command(environment.export("XLA_PYTHON_CLIENT_PREALLOCATE=false")),
            Fix::new("or give it a smaller share")
                .command(environment.export("XLA_PYTHON_CLIENT_MEM_FRACTION=.50")),
        ],
        _ => vec![
            Fix::new("let TensorFlow allocate memory as it needs it")
                .command(environment.export("TF_FORCE_GPU_ALLOW_GROWTH=true")),
        ],
    }
}

fn overhead(situation: &Situation<'_>) -> Vec<Fix> {
    let (account, facts) = (&situation.account, situation.facts);
    let mut fixes = Vec::new();
    if facts.framework == "pytorch-mps" {
        return vec![watermark(), smaller_batch(situation)];
    }
    if let Some(pools) =
        facts.private_pools.filter(|pools| pools.share_of(facts.live.unwrap_or(Bytes::MAX)) >= 0.5)
    {
        fixes.push(
            Fix::new("capture fewer CUDA graphs, or let them share one pool")
                .command("torch.cuda.graph(g, pool=shared_pool)")
                .frees(pools),
        );
    }
    if let Some(overhead) = account.overhead().filter(|&overhead| overhead > CONTEXT_TYPICAL) {
        fixes.push(
            Fix::new("look for a second framework or direct CUDA allocations in this process, and for NCCL buffers")
                .frees(overhead - CONTEXT_TYPICAL),
        );
    }
    if fixes.is_empty() {
        fixes.push(
            Fix::new("leave libraries some memory: cap PyTorch's allocator below the whole GPU")
                .command("torch.cuda.set_per_process_memory_fraction(0.9)"),
        );
        fixes.push(Fix::new("run fewer processes on this GPU: each keeps a context of 300 to 600 MiB"));
        if facts.framework == "nccl" || situation.settings.mentions("nccl") {
            fixes.push(
                Fix::new("shrink NCCL's buffers: half of the default 4 MiB per channel")
                    .command(situation.environment.export("NCCL_BUFFSIZE=2097152")),
            );
        }
    }
    fixes
}

/// Attempts that cannot help here.
pub(crate) fn wont_help(cause: Cause, situation: &Situation<'_>) -> Vec<String> {
    let (facts, account) = (situation.facts, &situation.account);
    let mut attempts = Vec::new();
    if !facts.framework.starts_with("pytorch") {
        return attempts;
    }
    match cause {
        Cause::Fragmentation => {
            attempts.push("empty_cache(), because live tensors sit between the free blocks and PyTorch already returned every whole segment".to_owned());
            if situation.is_expandable_on() {
                attempts.push("expandable_segments, because the log shows that it is on".to_owned());
            }
        }
        Cause::LiveDataFillsDevice if situation.environment.maker != Maker::Apple => {
            if let Some(cached) = account.cached.filter(|&cached| {
                !account.shortage().is_some_and(|shortage| shortage.is_fragmented())
                    && account.missing().is_some_and(|missing| cached < missing)
            }) {
                attempts
                    .push(format!("empty_cache() or expandable_segments, because only {cached} is cached"));
            }
        }
        Cause::OtherProcesses | Cause::HiddenHolder if !can_make_room_itself(account) => {
            attempts.push(
                "a smaller batch or empty_cache(), because this process holds too little to make room"
                    .to_owned(),
            );
        }
        Cause::ArtificialLimit => {
            attempts
                .push("stopping other processes, because the GPU has room and the limit does not".to_owned());
        }
        _ => {}
    }
    attempts
}

/// What would show more than the text does.
pub(crate) fn next(deciding: &Finding, situation: &Situation<'_>) -> Vec<Fix> {
    let facts = situation.facts;
    let mut next = Vec::new();
    let is_open = deciding.certainty <= Certainty::Possible;
    if is_open && is_recordable(situation) {
        next.push(advice::record_run());
    }
    let is_about_own_memory = matches!(
        deciding.cause,
        Cause::LiveDataFillsDevice
            | Cause::Fragmentation
            | Cause::Leak
            | Cause::ArtificialLimit
            | Cause::Undetermined
    );
    if is_from_pytorch(facts) && is_about_own_memory && situation.program.work != Work::Inference {
        next.push(advice::record_snapshot());
    }
    next
}

/// Whether `makeroom run` can record a program that writes this: one that failed for memory of an NVIDIA GPU, on Linux.
fn is_recordable(situation: &Situation<'_>) -> bool {
    let facts = situation.facts;
    facts.is_failure()
        && matches!(facts.resource, Resource::Device | Resource::Unknown)
        && situation.environment.maker == Maker::Nvidia
        && matches!(situation.environment.system, System::Linux | System::Wsl)
        && !matches!(facts.framework, "pytorch-xla" | "host")
        && !is_without_cuda(facts)
}

/// Whether the program allocates through OpenCL, Vulkan, Direct3D or Metal, which CUDA's variables do not reach.
pub(crate) fn is_without_cuda(facts: &Facts) -> bool {
    ["opencl", "vulkan", "directx", "d3d", "metal", "hashcat", "dxvk", "openvino", "unreal", "wgpu", "game"]
        .iter()
        .any(|name| facts.framework.contains(name))
        || contains_ignoring_case(&facts.quote, "vulkan")
}

/// Whether PyTorch on an NVIDIA GPU wrote a text, which it also does without its allocator.
fn is_from_pytorch(facts: &Facts) -> bool {
    let words = ["RuntimeError: CUDA error", "RuntimeError: CUDA driver error", "torch."];
    facts.framework == "pytorch"
        || (facts.framework == "cuda" && words.iter().any(|words| facts.quote.contains(words)))
}
