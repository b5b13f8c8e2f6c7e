//! Host memory of a language's runtime, a compiler or a data framework: each has its own setting.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::Fix;
use makeroom_search::{Regex, pattern};

use super::gigabytes;
use crate::figures::{binary_size, captured_number};
use crate::situation::Situation;

static HEAP: LazyLock<Regex> = LazyLock::new(|| pattern(r"-Xmx(\d+)([kmgKMG])"));
/// NumPy names the array that it could not allocate.
static ARRAY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"array with shape \((\d+)[^)]*\)(?: and data type (\w+))?"));

/// The steps where the quoted line, or marks in the text, show a runtime that has its own memory settings.
pub(super) fn steps(situation: &Situation<'_>, quote: &str) -> Option<Vec<Fix>> {
    let settings = situation.settings;
    let quotes = |words: &[&str]| words.iter().any(|words| quote.contains(words));
    let says = |words: &[&str]| words.iter().any(|words| settings.mentions(words));
    if quotes(&["javascript heap", "allocation failed - javascript"]) {
        return Some(vec![
            Fix::new("raise Node.js's heap limit to 8 GiB")
                .command(situation.environment.export("NODE_OPTIONS=--max-old-space-size=8192")),
        ]);
    }
    if quotes(&["java heap", "java.lang.outofmemory", "gc overhead", "java runtime"]) {
        return Some(java(situation));
    }
    if quotes(&[
        "cc1plus",
        "nvcc",
        "cicc",
        "ninja",
        "g++",
        "clang",
        "rustc",
        "compiler",
        "killed signal terminated",
    ]) {
        return Some(vec![
            Fix::new("compile two files at a time: with heavy templates, each takes 2 to 8 GB").command(
                if says(&["pip", "setup.py", "torch", "wheel"]) { "MAX_JOBS=2 pip install …" } else { "make -j2   (or: ninja -j2)" },
            ),
            Fix::new("add swap for the build")
                .command("sudo fallocate -l 16G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile"),
        ]);
    }
    if quotes(&["killed"])
        && says(&[
            "cargo build",
            "cargo install",
            "Compiling ",
            "nvcc",
            "flash-attn",
            "cicc",
            "building wheel",
            "ninja",
        ])
    {
        let is_cargo = says(&["cargo", "Compiling "]);
        return Some(vec![
            Fix::new("compile one file at a time: with CUDA templates, each takes 2 to 8 GB").command(
                if is_cargo {
                    "CARGO_BUILD_JOBS=1 RAYON_NUM_THREADS=1 cargo build --release"
                } else {
                    "MAX_JOBS=1 pip install …   (or: ninja -j1, make -j1)"
                },
            ),
            super::swap(situation),
        ]);
    }
    if quotes(&["for an array", "arraymemoryerror"]) || says(&["ArrayMemoryError", "for an array with shape"])
    {
        return Some(array(situation));
    }
    if quotes(&["cannot allocate vector of size", "vector memory"]) {
        return Some(vec![
            Fix::new("raise R's limit, and let the system swap").command("R_MAX_VSIZE=64Gb R"),
            Fix::new("read the data in pieces, with fewer columns")
                .command("data.table::fread(path, select = 1:20)"),
        ]);
    }
    if says(&[
        "raylet",
        "node running low on memory",
        "ray job submit",
        "ray::",
        "ray-oom-prevention",
        "ray-core",
        "RayOutOfMemory",
        "ObjectStoreFull",
        "RayTask",
        "ray.exceptions",
        "WorkerCrashedError",
    ]) {
        return Some(ray(situation));
    }
    if situation.facts.framework == Framework::Dask
        || says(&["distributed.nanny", "distributed.worker", "dask"])
    {
        return Some(dask(situation));
    }
    if says(&["org.apache.spark", "pyspark", "spark-submit", "ExecutorLostFailure"]) {
        return Some(spark(situation));
    }
    None
}

fn java(situation: &Situation<'_>) -> Vec<Fix> {
    let heap = situation
        .settings
        .parts()
        .iter()
        .find_map(|part| HEAP.captures(part).and_then(|found| binary_size(&found[1], &found[2])));
    let (from, to) = match heap {
        Some(heap) => (format!(" from {heap}"), gigabytes(heap.scaled(2.0))),
        None => (" (default: a quarter of RAM)".to_owned(), 8),
    };
    let mut fixes = vec![Fix::new(format!("raise the heap limit{from}")).command(format!("-Xmx{to}g"))];
    if situation.settings.mentions("spark") {
        fixes.extend(spark(situation));
    }
    fixes
}

fn spark(situation: &Situation<'_>) -> Vec<Fix> {
    let cores = situation
        .settings
        .number(&["--executor-cores", "spark.executor.cores"])
        .map_or(2, |cores| (cores / 2.0) as u64)
        .max(1);
    vec![
        Fix::new("give each executor more memory, both in its heap and outside it")
            .command("--executor-memory 16g --conf spark.executor.memoryOverhead=4g"),
        Fix::new("run fewer tasks per executor").command(format!("--executor-cores {cores}")),
        Fix::new("use more, smaller partitions (default: 200 partitions)")
            .command("--conf spark.sql.shuffle.partitions=800"),
    ]
}

/// An array below this fits any machine that is not full already.
const SMALL_ARRAY: Bytes = Bytes::gib(1);

static ALLOCATE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Unable to allocate ([\d.]+) ([KMGT])i?B"));
static SIDES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d+"));

/// The side that an array's shape has three times, as a picture never does.
fn repeated_sides(shape: &str) -> Option<&str> {
    let sides: Vec<&str> = SIDES.find_iter(shape).map(|side| side.as_str()).take(8).collect();
    sides
        .iter()
        .find(|side| side.len() >= 3 && sides.iter().filter(|other| other == side).count() >= 3)
        .copied()
}

/// A machine whose memory is full: more of it, and for videos shorter parts.
fn full_machine(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if ["video", " frames", ".mp4", " fps", "ffmpeg"].iter().any(|words| situation.settings.mentions(words)) {
        fixes.push(
            Fix::new("cut the video into 10-second segments and process one at a time: all its frames are kept in RAM")
                .command("ffmpeg -i in.mp4 -c copy -f segment -segment_time 10 -reset_timestamps 1 part%03d.mp4"),
        );
    }
    fixes.extend(super::by_system(situation, false));
    fixes
}

/// An array that is too large: fewer bytes per element, or a part at a time.
fn array(situation: &Situation<'_>) -> Vec<Fix> {
    let found = situation.settings.parts().into_iter().find_map(|part| ARRAY.captures(part));
    let kind = found.as_ref().and_then(|found| found.get(2)).map_or("float64", |kind| kind.as_str());
    let rows: Option<u64> = found.as_ref().and_then(|found| captured_number(found, 1));
    let mut fixes = Vec::new();
    // A small array is only the last that did not fit: the rest of the program holds the memory.
    let stated = || {
        let found = situation.settings.parts().into_iter().find_map(|part| ALLOCATE.captures(part))?;
        binary_size(&found[1], &found[2])
    };
    if situation.facts.request.or_else(stated).is_some_and(|request| request < SMALL_ARRAY) {
        return full_machine(situation);
    }
    if let Some(sides) = found.as_ref().and_then(|found| repeated_sides(&found[0])) {
        fixes.push(
            Fix::new(format!(
                "compare the shapes before the failing line: a dimension of {sides} that appears three times comes from a wrong broadcast, not from the data"
            ))
            .command("print(image.shape, mask.shape)   (np.squeeze(mask) drops sides of 1)"),
        );
        return fixes;
    }
    let smaller = match kind {
        "float64" => Some("float32"),
        "int64" => Some("int32"),
        "complex128" => Some("complex64"),
        _ => None,
    };
    if let Some(smaller) = smaller {
        fixes
            .push(Fix::new(format!("halve the array's size: use {smaller} instead of {kind}")).command(
                format!("array.astype(np.{smaller})   (or dtype=np.{smaller} where it is created)"),
            ));
    }
    fixes.splice(0..0, sparse(situation));
    if let Some(rows) = rows.filter(|&rows| rows >= 8) {
        // Parts that any machine has room for.
        let request = situation.facts.request.unwrap_or_default();
        let parts = request.get().div_ceil(4 << 30).clamp(8, rows);
        let part = rows.div_ceil(parts);
        let size = if request.is_zero() {
            String::new()
        } else {
            format!(", {} each", Bytes::new(request.get() / parts))
        };
        fixes.push(
            Fix::new(format!("process the {rows} rows in {parts} parts{size}")).command(format!(
                "for start in range(0, {rows}, {part}): process(data[start:start + {part}])"
            )),
        );
    }
    fixes.push(
        Fix::new("or keep the array on disk")
            .command(format!("np.memmap(path, dtype=np.{kind}, mode='w+', shape=shape)")),
    );
    fixes
}

/// Count matrices are nearly all zeros: what makes them dense is the mistake.
fn sparse(situation: &Situation<'_>) -> Vec<Fix> {
    let says = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
    if says(&["scanpy", "anndata", "h5ad", "10x", "barcode", "single-cell", "scrna", "sc.pp"]) {
        return vec![
            Fix::new("keep the counts sparse, and drop empty droplets before anything makes them dense")
                .command(
                    "adata.X = scipy.sparse.csr_matrix(adata.X); sc.pp.filter_cells(adata, min_genes=200)",
                ),
            Fix::new("read the filtered matrix: the raw one has a row for every barcode")
                .command("sc.read_10x_mtx('filtered_feature_bc_matrix/')"),
        ];
    }
    if says(&[
        "toarray()",
        "todense()",
        "sparse",
        "tfidf",
        "one-hot",
        "get_dummies",
        "CountVectorizer",
        "OneHotEncoder",
    ]) {
        return vec![
            Fix::new("keep the matrix sparse: drop the call that makes it dense")
                .command("x = scipy.sparse.csr_matrix(x)   (instead of x.toarray())"),
        ];
    }
    Vec::new()
}

fn ray(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if ["ObjectStoreFull", "object store is full"].iter().any(|words| settings.mentions(words)) {
        fixes.push(
            Fix::new("enlarge the object store (default 30 % of RAM)")
                .command("ray.init(object_store_memory=32 * 1024**3)"),
        );
    }
    fixes.push(
        Fix::new(
            "run fewer tasks at once: reserve memory for each task, so that Ray starts only as many as fit",
        )
        .command("@ray.remote(num_cpus=4, memory=16 * 1024**3)"),
    );
    if settings.mentions("memory pressure")
        || settings.mentions("memory usage threshold")
        || settings.mentions("of the memory on node")
    {
        fixes.push(
            Fix::new("let tasks use more of the node's memory before Ray kills them (default 0.95)")
                .command(situation.environment.export("RAY_memory_usage_threshold=0.98")),
        );
    }
    fixes
}

fn dask(situation: &Situation<'_>) -> Vec<Fix> {
    let limit = situation.facts.limit.map_or(16, |limit| gigabytes(limit.scaled(2.0)));
    let terminate = situation.settings.number(&["memory.terminate", "terminate"]);
    if let Some(terminate) = terminate.filter(|&share| share < 0.5) {
        return vec![
            Fix::new(format!(
                "raise the share of the memory budget at which Dask kills a worker, from {terminate} to the default"
            ))
            .command("distributed.worker.memory.terminate: 0.95   (false: never)"),
        ];
    }
    vec![
        Fix::new("run fewer workers with more memory each (default: RAM divided by the number of workers)")
            .command(format!("LocalCluster(n_workers=2, memory_limit='{limit}GB')")),
        Fix::new("use smaller partitions").command("ddf = ddf.repartition(partition_size='100MB')"),
        Fix::new("spill to disk earlier (default 0.7)")
            .command("dask.config.set({'distributed.worker.memory.spill': 0.5})"),
    ]
}
