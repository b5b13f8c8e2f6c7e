//! Encoding, mining and password recovery.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::environment::System;
use crate::figures::captured_number;
use crate::host_fixes;
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&NVENC, &HASHCAT, &JOHN, &XMR, &ETHASH, &EQUIHASH];

const NVENC: Program = Program {
    name: "NVENC",
    frameworks: &[Framework::Nvenc],
    marks: &["h264_nvenc", "hevc_nvenc", "av1_nvenc", "nvEncOpenEncodeSession", "NVEncC", "obs-studio"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => sessions(situation),
        _ => lever::steps(situation, cause, NVENC_LEVERS),
    },
};

/// `GeForce` cards encode a fixed number of streams at a time.
fn sessions(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = vec![
        Fix::new("stop other encoding jobs: GeForce cards allow 3, 5 or 8 sessions, depending on the driver")
            .command("nvidia-smi encodersessions"),
        Fix::new("update the driver: 550 and later allow 8 sessions on GeForce")
            .command("nvidia-smi --query-gpu=driver_version --format=csv"),
    ];
    if situation.settings.mentions("nvenc") {
        fixes.push(Fix::new("encode additional streams on the CPU").command("ffmpeg … -c:v libx264"));
    }
    fixes
}

const NVENC_LEVERS: &[Lever] = &[
    Lever::lower("use fewer surfaces{from}", "-surfaces {to}", &["-surfaces"], 8).at_least(4, 1),
    Lever::lower("decode with fewer extra frames{from}", "-extra_hw_frames {to}", &["-extra_hw_frames"], 2),
    Lever::lower("shorten the lookahead{from frames}", "-rc-lookahead {to} -bf 0", &["-rc-lookahead"], 0),
    Lever::new("run fewer encoding jobs at once", "nvidia-smi encodersessions"),
    Lever::new("scale on the GPU before encoding", "-vf scale_cuda=1920:-2")
        .unless_said(&["scale_cuda", "scale_npp"]),
];

const HASHCAT: Program = Program {
    name: "hashcat",
    frameworks: &[Framework::Hashcat],
    marks: &["hashcat"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, HASHCAT_LEVERS),
        _ => lever::steps(situation, cause, HASHCAT_LEVERS),
    },
};

const HASHCAT_LEVERS: &[Lever] = &[
    Lever::lower("use a lower workload profile{from}", "hashcat -w {to}", &["-w", "--workload-profile"], 1),
    Lever::lower("compute fewer hashes per thread{from}", "hashcat -n {to}", &["-n", "--kernel-accel"], 8),
    Lever::switch(
        "use optimized kernels, for passwords of up to 31 characters",
        "hashcat -O",
        &["-O", "--optimized-kernel-enable"],
    ),
    Lever::new("skip the device that is too small", "hashcat -d 1").unless_said(&["-d 1"]),
    Lever::new(
        "use CUDA instead of OpenCL, which caps a single buffer at a quarter of the GPU's memory",
        "hashcat --backend-ignore-opencl",
    )
    .unless_said(&["--backend-ignore-opencl"])
    .only(|situation| situation.settings.mentions("opencl")),
];

const JOHN: Program = Program {
    name: "John the Ripper",
    frameworks: &[],
    marks: &["john/run", "opencl_common.c", "_fmt_plug.c", "opencl_DES", "john --format"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, JOHN_LEVERS),
};

const JOHN_LEVERS: &[Lever] = &[
    Lever::new(
        "test fewer candidates at once: halve the global work size",
        "GWS=4096 LWS=64 john --format=…-opencl",
    )
    .unless_said(&["GWS="]),
    Lever::new("choose another device", "john --devices=2").unless_said(&["--devices="]),
    Lever::new("use the CPU format", "john --format=raw-sha256")
        .only(|situation| situation.settings.mentions("-opencl")),
];

const ETHASH: Program = Program {
    name: "the Ethash miner",
    frameworks: &[Framework::Ethminer],
    marks: &[
        "ethminer",
        "PhoenixMiner",
        "lolMiner",
        "t-rex",
        "TREX:",
        "ethash",
        "daggerhashimoto",
        "NBMiner",
        "TeamRedMiner",
        "the DAG",
        "for DAG",
        "place DAG",
        "DAG epoch",
        "generate DAG",
        "initialize DAG",
        "DAG size",
        "kawpow",
        "progpow",
        "DAG buffer",
    ],
    work: Work::Other,
    advise: ethash,
};

fn ethash(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let total =
        situation.facts.total.map_or_else(|| "this card's memory".to_owned(), |total| total.to_string());
    let smaller =
        Fix::new(format!("mine a coin whose DAG or table fits in {total}: all of it must be in GPU memory"))
            .command(coin(situation));
    match cause {
        Cause::RequestExceedsDevice
        | Cause::LiveDataFillsDevice
        | Cause::NonFrameworkOverhead
        | Cause::ArtificialLimit => {
            let mut fixes = vec![smaller];
            // Where the figures show a card that is too small, no page file helps.
            let is_too_small = situation.settings.mentions("Required:")
                || situation.facts.total.is_some_and(|total| total < Bytes::gib(4));
            let pages =
                pages_for_all(situation).filter(|_| !is_too_small && cause != Cause::RequestExceedsDevice);
            fixes.splice(0..0, pages);
            fixes.extend(lever::steps(situation, Cause::LiveDataFillsDevice, ETHASH_LEVERS));
            fixes
        }
        _ => Vec::new(),
    }
}

/// A coin for the card: by what the DAG of each had grown to.
fn coin(situation: &Situation<'_>) -> &'static str {
    match situation.facts.total.map_or(0, |total| total.get() >> 30) {
        1..=3 => "Vertcoin (Verthash: 1.2 GB; Ethash coins need 4 GB or more)",
        4 => "Vertcoin (Verthash: 1.2 GB) or Ubiq (Ubqhash: below 4 GB)",
        5..=6 => "Ethereum Classic (ETChash, half the DAG of Ethash) or Ergo (Autolykos 2)",
        _ => "Ethereum Classic (ETChash, half the DAG of Ethash), Ravencoin (KawPow) or Ergo (Autolykos 2)",
    }
}

fn is_linux(situation: &Situation<'_>) -> bool {
    ["HiveOS", "hive os", "ubuntu", "RaveOS", "/root/", "/home/"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

/// Cards with their number and their memory: "3x 1080 8GB", "2 x RTX 3060 12 GB".
static CARDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(\d{1,2}) ?[x×] ?(?:[\w-]+ ){0,3}?[\w-]+ (\d{1,2}) ?GB?\b"));

/// The memory of all cards that the text names, in gigabytes.
fn cards_by_name(situation: &Situation<'_>) -> Option<u64> {
    let parts = situation.settings.parts();
    let sizes = parts
        .into_iter()
        .flat_map(|part| CARDS.captures_iter(part))
        .filter_map(|found| Some(captured_number::<u64>(&found, 1)? * captured_number::<u64>(&found, 2)?));
    Some(sizes.take(16).sum()).filter(|&sum| sum > 0)
}

/// Windows backs the memory of all GPUs with the page file: a miner with many fails at the last of them.
fn pages_for_all(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let shown = (1..=16).rev().find(|count| {
        [
            format!("{count} GPUs"),
            format!("{count} cards"),
            format!("GPU #{}", count - 1),
            format!("GPU{}:", count - 1),
        ]
        .iter()
        .any(|words| settings.mentions(words))
    });
    let each = situation.facts.total.map_or(8, |total| (total.get() >> 30).max(2) + 1);
    let named = cards_by_name(situation).map(|sum| sum.div_ceil(4) * 4 + 4);
    let tried = host_fixes::tried_page_file(situation).map_or(0, |tried| tried * 2);
    let size = named.unwrap_or(shown.unwrap_or(1) as u64 * each).max(tried).max(16);
    (!is_linux(situation)).then(|| {
        Fix::new(format!(
            "on Windows: enlarge the page file to {size} GB, the sum of all cards' memory (SystemPropertiesPerformance > Advanced > Virtual memory > Change)"
        ))
        .command(format!("Initial size = Maximum size = {}", size * 1024))
    })
}

const ETHASH_LEVERS: &[Lever] = &[
    Lever::new(
        "lift AMD's cap on the size of a single buffer",
        "GPU_MAX_ALLOC_PERCENT=100 GPU_SINGLE_ALLOC_PERCENT=100",
    )
    .unless_said(&["GPU_MAX_ALLOC_PERCENT"])
    .only(|situation| {
        ["clCreateBuffer", "opencl", "amd", "cl-"].iter().any(|words| situation.settings.mentions(words))
    })
    .variable(),
    Lever::new("do not reserve room for the next epochs' DAG (PhoenixMiner, Claymore)", "-eres 0")
        .unless_said(&["-eres 0"])
        .only(|situation| {
            ["phoenix", "claymore", "WATCHDOG: GPU error", "big buffer for DAG"]
                .iter()
                .any(|words| situation.settings.mentions(words))
        }),
    Lever::new("load the DAG on one GPU at a time", "ethminer --dag-load-mode 1")
        .unless_said(&["dag-load-mode 1"])
        .only(|situation| {
            ["ethminer", "cudaminer", "ethash_cuda_miner"]
                .iter()
                .any(|words| situation.settings.mentions(words))
        }),
    Lever::new(
        "run the desktop on another card: on Windows, it uses 0.5 to 1 GB of this one's memory",
        "connect the monitor to the integrated GPU (BIOS: Primary Display = IGFX)",
    )
    .only(|situation| !is_linux(situation)),
];

const XMR: Program = Program {
    name: "the CryptoNight miner",
    frameworks: &[],
    marks: &["xmr-stak", "xmrig", "cryptonight", "\"algo\": \"cn", "strided_index"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, XMR_LEVERS),
};

const XMR_LEVERS: &[Lever] = &[
    Lever::lower(
        "lower the intensity{from} in amd.txt or config.json: each thread takes 2 MB",
        "\"intensity\": {to}",
        &["intensity"],
        480,
    )
    .at_least(8, 8),
    Lever::new("run one thread per GPU: one entry per index", "\"threads\": [ { \"index\": 0, … } ]"),
    Lever::new(
        "enlarge the page file to the sum of all GPUs' memory",
        "SystemPropertiesPerformance > Advanced > Virtual memory",
    )
    .only(|situation| situation.environment.system == System::Windows),
];

const EQUIHASH: Program = Program {
    name: "the Equihash miner",
    frameworks: &[],
    marks: &["silentarmy", "equihash", "Hash tables will use"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, EQUIHASH_LEVERS),
        _ => lever::steps(situation, cause, EQUIHASH_LEVERS),
    },
};

const EQUIHASH_LEVERS: &[Lever] = &[
    Lever::new("use smaller hash tables: rebuild with fewer rows (param.h)", "#define NR_ROWS_LOG 16")
        .unless_said(&["NR_ROWS_LOG 16"]),
    Lever::new("run one instance per GPU", "silentarmy --instances 1").unless_said(&["--instances 1"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let opencl = "clEnqueueNDRangeKernel: CL_MEM_OBJECT_ALLOCATION_FAILURE: out of memory";
        for (name, log, first, set) in [
            (
                "NVENC",
                "[h264_nvenc @ 0x55] CreateBitstreamBuffer failed: out of memory (10)".to_owned(),
                "-surfaces 8",
                ("-vf scale_cuda=1280:-2", "scale_cuda"),
            ),
            (
                "hashcat",
                "* Device #1: Not enough allocatable device memory for this attack.".to_owned(),
                "-w 1",
                ("hashcat -O -w 1", "hashcat -O"),
            ),
            (
                "John the Ripper",
                format!("/opt/john/run: opencl_common.c:900\n{opencl}"),
                "GWS=4096",
                ("john --devices=1", "--devices="),
            ),
            (
                "the CryptoNight miner",
                format!("xmr-stak 2.10\n{opencl}"),
                "\"intensity\": 480",
                ("\"intensity\": 8", "\"intensity\""),
            ),
            (
                "the Equihash miner",
                format!("silentarmy\n{opencl}"),
                "NR_ROWS_LOG 16",
                ("silentarmy --instances 1", "--instances 1"),
            ),
            (
                "the Ethash miner",
                format!("ethminer 0.19\n{opencl}"),
                "page file to 16 GB",
                ("ethminer --dag-load-mode 1", "--dag-load-mode 1"),
            ),
        ] {
            check(name, &log, first, set);
        }
    }

    #[test]
    fn sessions_are_a_limit_of_the_driver() {
        let (_, steps) = advice(
            "[h264_nvenc @ 0x55] OpenEncodeSessionEx failed: out of memory (10): (no details)",
            Cause::ArtificialLimit,
        );
        assert_eq!(steps[0].command.as_deref(), Some("nvidia-smi encodersessions"));
    }
}
