//! What to do about a finding in an error text, and what not to bother with.
//!
//! Advice is given only where it can help in this case: the settings that exist in the version that wrote the
//! text, the process that holds the memory, the batch where the text names one.

use makeroom_core::Bytes;

use super::context::Context;
use super::facts::{Allocator, Facts, Resource, Severity};
use super::judge::{Account, CONTEXT_TYPICAL};
use crate::advice::{self, Maker};
use crate::{Cause, Certainty, Finding, Fix};

/// Fills in the fixes of each finding; a format that knows its writer's options has named them already.
pub(crate) fn attach(findings: &mut [Finding], facts: &Facts, context: &Context) {
    let account = Account::new(facts);
    for finding in findings.iter_mut().filter(|finding| finding.fixes.is_empty()) {
        finding.fixes = for_cause(finding.cause, &account, context);
        finding.fixes.sort_by_key(|fix| std::cmp::Reverse(fix.frees));
    }
}

fn for_cause(cause: Cause, account: &Account<'_>, context: &Context) -> Vec<Fix> {
    let facts = account.facts;
    match cause {
        Cause::Fragmentation => fragmentation(account, context),
        Cause::LiveDataFillsDevice => live_data(account, context),
        Cause::OtherProcesses | Cause::HiddenHolder => others(cause, account, context),
        Cause::RequestExceedsDevice => vec![request_too_large(account)],
        Cause::ArtificialLimit => limit(account),
        Cause::Preallocation => preallocation(facts),
        Cause::NonFrameworkOverhead => overhead(account),
        Cause::HostMemory => host(facts),
        Cause::SharedMemoryOrKernelResource => kernel(facts),
        Cause::Leak => advice::leak(),
        Cause::IntegerOrShapeBug => {
            vec![Fix::new(
                "print the shape and the data type at the failing line: an index or a product overflowed",
            )]
        }
        Cause::CacheHeldByFramework => vec![advice::empty_other_cache()],
        Cause::Undetermined | Cause::None => Vec::new(),
    }
}

fn kernel(facts: &Facts) -> Vec<Fix> {
    let tiles = Fix::new("use smaller tiles (Triton: a smaller BLOCK size, or num_stages=1)");
    let registers = Fix::new("launch with fewer threads per block, or let the compiler use fewer registers")
        .command("nvcc -maxrregcount=64 …");
    if facts.quote.contains("shared") || facts.framework == "triton" {
        vec![tiles]
    } else {
        vec![registers, tiles]
    }
}

fn fragmentation(account: &Account<'_>, context: &Context) -> Vec<Fix> {
    let cached = account.cached.unwrap_or(Bytes::ZERO);
    let mut fixes = Vec::new();
    match account.facts.allocator {
        Allocator::Torch if !context.is_expandable_on => {
            fixes.push(advice::expandable_segments().frees(cached));
        }
        Allocator::TorchWithoutExpandable => {
            let text = account.facts.quote.as_str();
            fixes.push(
                Fix::new(
                    "update PyTorch to 2.1 or later, which can grow segments instead of cutting them up",
                )
                .command(
                    "pip install --upgrade torch && export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                )
                .frees(cached),
            );
            if text.contains("max_split_size_mb") {
                fixes.push(
                    Fix::new("without an update: keep large segments from being cut up")
                        .command("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512"),
                );
            }
        }
        Allocator::Bfc => fixes.push(
            Fix::new("let the driver place the memory")
                .command("export TF_GPU_ALLOCATOR=cuda_malloc_async")
                .frees(cached),
        ),
        _ => {}
    }
    fixes.push(Fix::new("ask for fewer different sizes: pad batches to a few fixed lengths or image sizes"));
    fixes
}

fn live_data(account: &Account<'_>, context: &Context) -> Vec<Fix> {
    let facts = account.facts;
    let mut fixes = vec![smaller_batch(account, context)];
    if facts.framework == "pytorch-mps" {
        fixes.push(
            Fix::new("or let PyTorch take more than its share; the machine may then swap or stop")
                .command("export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0"),
        );
    }
    if facts.allocator == Allocator::Torch
        && !context.is_expandable_on
        && let Some((cached, free)) = account.cached.zip(facts.free)
        && account.would_fit_in_one_piece() == Some(true)
    {
        let mut expandable = advice::expandable_segments();
        expandable.action = format!(
            "{}: it may be just enough, as {cached} is unused in pieces beside the {free} that are free",
            expandable.action
        );
        fixes.push(expandable);
    }
    if facts.framework.starts_with("pytorch") {
        fixes.push(advice::checkpointing());
        fixes.push(advice::half_precision(Maker::of(facts.framework)));
    }
    fixes
}

/// What must go, and how much smaller the batch would have to be.
fn smaller_batch(account: &Account<'_>, context: &Context) -> Fix {
    let facts = account.facts;
    let (Some(live), Some(request), Some(short)) = (facts.live, facts.request, account.short_of()) else {
        return Fix::new(if matches!(facts.framework, "cuda" | "hip" | "thrust") {
            "take less at once: a smaller problem or the data in pieces; and free first what is no longer used"
        } else {
            "a smaller batch, shorter sequences or smaller images"
        });
    };
    let needed = live + request;
    let factor = (needed - short).share_of(needed);
    let share = 100.0 * short.share_of(needed);
    let share = if share < 1.0 { "less than 1 %".to_owned() } else { format!("{share:.0} %") };
    let action = match facts.batch.or(context.batch) {
        Some(batch) if batch > 1 => format!(
            "a smaller batch: at most {} instead of {batch} if everything grew with it, less if the model takes its part",
            ((batch as f64 * factor).floor() as u64).clamp(1, batch - 1)
        ),
        Some(_) => "shorter sequences or smaller images: the batch is already 1".to_owned(),
        None => format!(
            "a smaller batch or shorter inputs: {short} must go, {share} of what is live and asked for"
        ),
    };
    Fix::new(action).frees(short)
}

fn others(cause: Cause, account: &Account<'_>, context: &Context) -> Vec<Fix> {
    let maker = Maker::of(account.facts.framework);
    let mut fixes: Vec<Fix> = account
        .others
        .iter()
        .map(|process| {
            Fix::new(format!("stop process {} if it is yours (its unsaved work is lost)", process.pid))
                .command(format!("kill {}", process.pid))
                .frees(process.bytes)
        })
        .collect();
    let unlisted = account.unlisted().map(|unlisted| unlisted - CONTEXT_TYPICAL);
    if fixes.is_empty() {
        let mut see = if cause == Cause::HiddenHolder {
            advice::find_hidden_holders()
        } else {
            advice::list_holders(maker)
        };
        see.frees = unlisted.filter(|bytes| !bytes.is_zero());
        fixes.push(see);
    }
    fixes.extend(advice::another_device(maker, account.facts.device));
    if can_make_room_itself(account) {
        fixes.push(Fix { frees: None, ..smaller_batch(account, context) });
    }
    fixes
}

/// Whether this process holds, or asks for, enough that less of it would do.
fn can_make_room_itself(account: &Account<'_>) -> bool {
    let held = account.reserved.or(account.facts.live).unwrap_or(Bytes::ZERO);
    let free = account.facts.free.unwrap_or(Bytes::ZERO);
    let request = account.facts.request.unwrap_or(Bytes::MAX);
    account.missing().is_some_and(|missing| held >= missing) || free.share_of(request) >= 0.1
}

fn request_too_large(account: &Account<'_>) -> Fix {
    let request = account.facts.request.unwrap_or(Bytes::ZERO);
    let room = account.facts.total.map(|total| total - CONTEXT_TYPICAL);
    match room.filter(|room| !room.is_zero() && *room < request) {
        Some(room) => Fix::new(format!(
            "do the work in at least {} pieces, or spread it over that many devices",
            (request.get()).div_ceil(room.get())
        )),
        None => Fix::new("ask for less in one piece: a smaller batch, or the work in several pieces"),
    }
}

fn limit(account: &Account<'_>) -> Vec<Fix> {
    let facts = account.facts;
    let held = account.reserved.or(facts.live).unwrap_or(Bytes::ZERO);
    let needed = facts.request.map(|request| held + request);
    let mut fixes = Vec::new();
    if facts.framework.starts_with("pytorch") {
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
        fixes.push(fix);
    } else {
        fixes.push(match facts.framework {
            "onnxruntime" => Fix::new("raise the arena's limit")
                .command("providers=[('CUDAExecutionProvider', {'gpu_mem_limit': N})]"),
            "tensorflow" => {
                Fix::new("raise per_process_gpu_memory_fraction, or the memory_limit of the logical device")
            }
            "cupy" => Fix::new("raise or remove the pool's limit").command("unset CUPY_GPU_MEMORY_LIMIT"),
            _ => Fix::new("raise the limit that the program was given"),
        });
    }
    fixes
}

fn preallocation(facts: &Facts) -> Vec<Fix> {
    match facts.framework {
        "jax" => vec![
            Fix::new("let JAX take memory as it needs it")
                .command("export XLA_PYTHON_CLIENT_PREALLOCATE=false"),
            Fix::new("or give it a smaller share").command("export XLA_PYTHON_CLIENT_MEM_FRACTION=.50"),
        ],
        "catboost" => {
            vec![Fix::new("let CatBoost take a smaller share of the card").command("gpu_ram_part=0.5")]
        }
        "paddlepaddle" => vec![
            Fix::new("let Paddle take memory as it needs it")
                .command("export FLAGS_allocator_strategy=auto_growth"),
        ],
        _ => vec![
            Fix::new("let TensorFlow take memory as it needs it")
                .command("export TF_FORCE_GPU_ALLOW_GROWTH=true"),
        ],
    }
}

fn overhead(account: &Account<'_>) -> Vec<Fix> {
    let facts = account.facts;
    let mut fixes = Vec::new();
    if let Some(pools) =
        facts.private_pools.filter(|pools| pools.share_of(facts.live.unwrap_or(Bytes::MAX)) >= 0.5)
    {
        fixes.push(
            Fix::new("capture fewer CUDA graphs, or let them share one pool: torch.cuda.graph(g, pool=…)")
                .frees(pools),
        );
    }
    if facts.framework == "vllm" {
        fixes.push(
            Fix::new("leave more of the card to graphs, NCCL and the context")
                .command("--gpu-memory-utilization 0.85"),
        );
        fixes.push(Fix::new("do without CUDA graphs").command("--enforce-eager"));
    }
    if let Some(overhead) = account.overhead().filter(|&overhead| overhead > CONTEXT_TYPICAL) {
        fixes.push(
            Fix::new("look for a second framework or direct CUDA allocations in this process, and for NCCL buffers")
                .frees(overhead - CONTEXT_TYPICAL),
        );
    }
    if fixes.is_empty() {
        fixes.push(
            Fix::new("load kernels only when they are used").command("export CUDA_MODULE_LOADING=LAZY"),
        );
        fixes.push(Fix::new("start fewer processes on this card: each keeps a context of its own"));
    }
    fixes
}

fn host(facts: &Facts) -> Vec<Fix> {
    if facts.quote.contains("shared memory") || facts.quote.contains("shm") {
        return vec![
            Fix::new("give the container more shared memory").command("docker run --shm-size=8g …"),
            Fix::new("or use fewer data-loader workers").command("DataLoader(num_workers=0)"),
        ];
    }
    if facts.quote.contains("os error 1455") {
        return vec![Fix::new(
            "enlarge the paging file in Windows' advanced system settings, or load with fewer workers",
        )];
    }
    vec![
        Fix::new("see what the machine has and who uses it").command("free -g && ps aux --sort=-rss | head"),
        Fix::new("load less at once: a memory-mapped data set, smaller pieces, less pinned memory"),
    ]
}

/// Things people try that cannot help here.
pub(crate) fn futile(cause: Cause, facts: &Facts, context: &Context) -> Vec<String> {
    let mut futile = Vec::new();
    if !facts.framework.starts_with("pytorch") {
        return futile;
    }
    match cause {
        Cause::Fragmentation => {
            futile.push("empty_cache(): live tensors sit between the pieces, and PyTorch already gave back every whole segment".to_owned());
            if context.is_expandable_on {
                futile.push("expandable_segments: the log shows that it is on".to_owned());
            }
        }
        Cause::LiveDataFillsDevice => {
            let account = Account::new(facts);
            let is_little = account.slack().is_some_and(|slack| slack < 0.05)
                && Maker::of(facts.framework) != Maker::Apple;
            if is_little {
                let cached = account.cached.unwrap_or(Bytes::ZERO);
                futile.push(if account.would_fit_in_one_piece() == Some(false) {
                    format!("empty_cache() or expandable_segments: only {cached} is unused")
                } else {
                    format!("empty_cache(): only {cached} is unused, between live tensors")
                });
            }
        }
        Cause::OtherProcesses | Cause::HiddenHolder if !can_make_room_itself(&Account::new(facts)) => {
            futile.push(
                "a smaller batch or empty_cache(): this process holds too little to make room".to_owned(),
            );
        }
        Cause::ArtificialLimit => {
            futile.push("stopping other processes: the device has room, the limit does not".to_owned());
        }
        _ => {}
    }
    futile
}

/// What would tell more than the text does.
pub(crate) fn next(deciding: &Finding, facts: &Facts) -> Vec<Fix> {
    let mut next = Vec::new();
    let (cause, maker) = (deciding.cause, Maker::of(facts.framework));
    let is_open = deciding.certainty <= Certainty::Possible;
    if is_open && is_recordable(facts) {
        next.push(advice::record_run());
    }
    let is_about_own_memory = matches!(
        cause,
        Cause::LiveDataFillsDevice
            | Cause::Fragmentation
            | Cause::Leak
            | Cause::ArtificialLimit
            | Cause::Undetermined
    );
    if is_from_pytorch(facts) && is_about_own_memory {
        next.push(advice::record_snapshot());
    }
    if is_open {
        next.push(advice::list_holders(maker));
    }
    next
}

/// Whether `makeroom run` can record a program that writes this: one that failed for memory of an NVIDIA GPU.
fn is_recordable(facts: &Facts) -> bool {
    facts.severity != Severity::Observation
        && matches!(facts.resource, Resource::Device | Resource::Unknown)
        && Maker::of(facts.framework) == Maker::Nvidia
        && facts.framework != "pytorch-xla"
}

/// Whether PyTorch on an NVIDIA GPU wrote a text, which it also does without its allocator.
fn is_from_pytorch(facts: &Facts) -> bool {
    let words = ["RuntimeError: CUDA error", "RuntimeError: CUDA driver error", "torch."];
    facts.framework == "pytorch"
        || (facts.framework == "cuda" && words.iter().any(|words| facts.quote.contains(words)))
}
