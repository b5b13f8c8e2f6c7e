//! Host memory that ran out, in the words of operating systems, launchers and schedulers. Language runtimes, compilers
//! and databases are in [`runtimes`](super::runtimes); the kernel's own log is read by [`oom_killer`](super::super::oom_killer).

use makeroom_core::Framework;
use makeroom_explain::Cause::{HostMemory, Undetermined};
use makeroom_explain::Certainty;

use super::{GPU_WORDS, Phrase, family};

/// Windows could not commit the memory.
const COMMIT: &str =
    "Windows could not commit the memory: RAM and page file together are too small. The GPU is not involved.";
/// The process was killed from outside.
const KILLED: &str = "The process was killed from outside (SIGKILL). The Linux kernel does this when the machine runs out of memory; the log does not show what killed it.";
const SHARED: &str = "Shared memory (/dev/shm) is full; it is part of the machine's memory.";
const WORKER: &str =
    "A data-loader worker was killed; the Linux kernel does this when the machine runs out of memory.";
/// Frames of a traceback in which an extension raised the error for device memory.
const GPU_FRAMES: &str = r"pycuda|cuMemAlloc|cupy/cuda|cupy\.cuda|numba/cuda|rmm/_lib|runtime/ops_(?:amd|nv|cuda|gpu|cl|hip|metal|webgpu)\.py|pyopencl";
const PYTHON: &str = "Python's MemoryError is about host memory unless an extension raised it.";

pub(super) const ROWS: &[Phrase] = &[
    Phrase::either(
        Framework::Host,
        &["potential root causes", "Possible reasons include"],
        r"(?:potential root causes|Possible reasons include).*\b(?:OOM|memory)\b",
    )
    .states(
        Undetermined,
        Certainty::Undetermined,
        "A worker died for an unknown reason; its supervisor lists the Linux OOM killer as one possibility. The kernel log (dmesg) shows whether the OOM killer ran.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "paging file",
            "error 1455",
            "error: 1455",
            "页面文件太小",
            "頁面檔太小",
            "分页文件太小",
            "Auslagerungsdatei",
            "archivo de pagin",
            "fichier de pagination",
            "arquivo de pagina",
            "file di paging",
            "Файл подкачки",
            "ページング ファイル",
            "페이징 파일",
            "plik stronicowania",
            "wisselbestand",
        ],
        r"paging file is too small|(?:os|win)[ _]?error:? ?1455|页面文件太小|頁面檔太小|分页文件太小|Auslagerungsdatei (?:ist )?zu klein|archivo de paginaci|fichier de pagination est (?:trop|insuffisant)|arquivo de pagina|file di paging|Файл подкачки слишком мал|ページング ファイルが小さ|페이징 파일|plik stronicowania|wisselbestand is te klein",
    )
    .certain(HostMemory, COMMIT),
    Phrase::host(
        Framework::Host,
        &["oom killer", "oom-killer", "out-of-memory killer", "out of memory killer"],
        r"\b(?:oom|out[- ]of[- ]memory)[- ]killer\b.{0,24}\b(?:steps? in|stepped in|kicks? in|kicked in|kills?|killed|killing|strikes|triggers?|triggered|terminat(?:es|ed))\b",
    )
    .unless(r"\b(?:if|may|might|could|would|can|avoid\w*|prevent\w*|before|unless|instead|not|never|so that|such as|whether|detect\w*|when(?:ever)? (?:the|an?|it|you))\b|invoked|cuda")
    .likely(HostMemory, "The Linux OOM killer killed the process because the machine ran out of memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["killed it", "killed the", "killed my", "killed this", "kills it", "kills the", "kills my", "kills this"],
        r"\b(?:the|linux) (?:linux )?(?:kernel|oom)\b.{0,60}\b(?:killed (?:it|the|my|this)|kills (?:it|the|my|this))\b",
    )
    .near(r"\b(?:system|host|cpu|free|main) (?:memory|ram)\b|\bRAM\b|\bswap")
    .unless(r"\b(?:if|may|might|could|would|can|avoid\w*|prevent\w*|not|never|whether)\b|jupyter|notebook")
    .leads(HostMemory, KILLED),
    Phrase::host(
        Framework::Host,
        &["killed by system", "killed by the system", "killed by the kernel", "killed by kernel", "killed by the os", "killed by os", "killed by linux", "killed by the operating system"],
        r"\bkilled by (?:the )?(?:system|(?:linux )?kernel|os|operating system|linux)\b",
    )
    .unless(r"time ?limit|timeout|wall ?time|SIGTERM|\b(?:if|may|might|could|would|not|never)\b")
    .leads(HostMemory, KILLED),
    Phrase::host(
        Framework::Host,
        &["cgroups for killing", "systemd-oomd"],
        r"\bConsidered \d+ cgroups for killing|oomd\[\d+\]:\s+Killed \S",
    )
    .certain(HostMemory, "systemd-oomd kills a control group because the machine's memory or swap is nearly used up. The GPU is not involved."),
    // OpenDroneMap says so for every stage that dies as it does without memory.
    Phrase::host(Framework::Host, &["You ran out of memory!"], r"You ran out of memory!")
        .near(r"opendm|WebODM|Info for Geeks|OpenDroneMap")
        .leads(HostMemory, "OpenDroneMap reports that a stage ran out of memory; it infers this from how the stage died."),
    Phrase::host(Framework::LightGbm, &["bad allocation"], r"\[LightGBM\] \[(?:Warning|Fatal)\] bad allocation")
        .likely(HostMemory, "LightGBM could not allocate host memory for its data or histograms. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["killed"],
        r"\b(?:memory|ram)\b.{0,60}\b(?:gets?|got|was|is|being) killed\b|\bkilled\b.{0,40}\b(?:out[ -]of[ -]memory|oom)\b",
    )
    .unless(r"cuda|\bgpu|Workers \(tasks|memory pressure|cgroup|oom[-_]kill")
    .leads(HostMemory, KILLED),
    Phrase::host(
        Framework::Host,
        &["killed"],
        r"\b(?:process|training|script|program|job|python|worker|kernel|it)\s+(?:(?:just|always|then|also|will)\s+)?(?:be|is|was|gets?|got|has been|being|keeps? getting)\s+(?:(?:always|automatically|suddenly)\s+)?killed\b|\b(?:gets?|got|getting) killed\b|(?:\berrors?|\bfails?|,|\bthen|\band)\s*,?\s*(?:be|is|was|been) killed\b|\b(?:causes?|caused|makes?|made|lets?|gets?|leads? to) (?:my|our|the|this|it)\b (?:\w+ ){0,2}?(?:to be |being |be |get |getting )?killed\b",
    )
    .unless(r"time ?limit|timeout|wall ?time|SIGTERM|by (?:me\b|(?:the |a )?user|hand)|manually|Ctrl|cuda|\bgpu")
    .leads(HostMemory, KILLED),
    Phrase::host(
        Framework::Host,
        &["kills", "killed", "terminates", "evicts", "evicted"],
        r"\b(?:kubernetes|k8s|kubelet|docker|containerd|slurm|the (?:kernel|os|system|scheduler|cluster|node|container runtime|watchdog))\b.{0,40}\b(?:kills|killed|terminates|terminated|evicts|evicted)\b.{0,80}\b(?:memory|ram)\b.{0,40}\b(?:limit\w*|exceed\w*|pass(?:es|ed)|reach\w*|out|full)\b",
    )
    .unless(r"cuda|\bgpu|vram|\b(?:if|would|might|could|may|can)\b")
    .likely(HostMemory, "The process was killed because its host memory reached a limit. The GPU is not involved."),
    Phrase::host(Framework::Host, &["MEM usage hard limit", "exceeded MEM"], r"exceeded (?:its )?(?:v?mem|memory)\w* (?:usage )?(?:hard |soft )?limit")
        .certain(HostMemory, "The job exceeded the host memory that it requested from the scheduler. The GPU is not involved."),
    Phrase::host(Framework::Host, &["MemoryError"], r"(?:^|[\s,:])(?-i:MemoryError)\b")
        .unless(r"\bwould\b|\bcould\b|\bmight\b|except\b|raise\b|Traceback|Unable to allocate|bad_alloc|cuda|\bgpu|\brmm\b|\bhip|cumem|device memory|cupy|numba")
        .not_near(GPU_FRAMES)
        .leads(HostMemory, PYTHON),
    Phrase::host(
        Framework::Host,
        &["pool was terminated abruptly", "unexpectedly terminated", "exited unexpectedly"],
        r"process pool was terminated abruptly|worker process .{0,60}unexpectedly terminated|DataLoader worker .{0,40}exited unexpectedly",
    )
    .leads(HostMemory, WORKER),
    Phrase::host(Framework::Host, &["of the memory on node", "RayOutOfMemoryError", "Memory on the node (IP"], r"More than \d+% of the memory on node|RayOutOfMemoryError|Memory on the node \(IP\b.{0,160}\bwhere the (?:task|actor|lease|worker)")
        .certain(HostMemory, "Ray stopped the task because the node's host memory is nearly full. The GPU is not involved."),
    Phrase::host(Framework::Host, &["CPU out of memory", "runtime: out of memory", "OUT_OF_MEMORY"], r"\bCPU out of memory|\bruntime: out of memory|\bState:? +(?-i:OUT_OF_ME(?:MORY|\+))")
        .certain(HostMemory, "The machine ran out of memory, or the job used up its share. The GPU is not involved."),
    Phrase::host(Framework::Host, &["Bus error"], r"^\W*Bus error(?:\W*$|\W+core dumped|: \d+)").leads(HostMemory, SHARED),
    Phrase::host(
        Framework::Host,
        &["kernel appears to have died", "kernel died", "kernel has died", "session crashed", "Kernel Restarting"],
        r"kernel (?:appears to have|has)? ?died|session crashed|Kernel Restarting",
    )
    .leads(HostMemory, KILLED),
    Phrase::host(Framework::Host, &["Killed"], r"\bline \d+: +\d+ (?-i:Killed)\b").leads(HostMemory, KILLED),
    // A warning of programs that lock their weights into memory.
    Phrase::host(Framework::Host, &["failed to mlock"], r"failed to mlock")
        .warning()
        .certain(HostMemory, "The program could not lock its memory (ulimit -l) and continued without locking it."),
    Phrase::host(Framework::Host, &["memory limit at some point"], r"memory limit at some point")
        .warning()
        .certain(HostMemory, "The Slurm job hit its host memory limit (--mem), which includes the page cache."),
    // Schedulers and container runtimes name the limit.
    Phrase::host(Framework::Host, &["OOMKilled"], r"\b(?-i:OOMKilled)\b")
        .unless(r"OOMKilled\W{1,4}false")
        .certain(
            HostMemory,
            "The container reached its memory limit and was killed (OOMKilled). The GPU is not involved.",
        ),
    Phrase::host(
        Framework::Host,
        &[
            "oom_kill event",
            "oom-kill event",
            "Exceeded job memory limit",
            "Exceeded step memory limit",
            "exceeded memory limit",
            ": Out Of Memory",
            "OUT_OF_ME",
        ],
        r"oom[-_]kill event|Exceeded (?:job|step) memory limit|exceeded memory limit .*being killed|srun: error: .*\btask [\d,-]+: Out Of Memory|State=OUT_OF_MEMORY|\bOUT_OF_ME\+",
    )
    .certain(
        HostMemory,
        "The Slurm job reached its host memory limit (--mem) and was killed. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &["job killed: mem job total"],
        r"job killed: mem job total (?P<used>\d+) ?(?P<used_unit>[kmg]?b) exceeded limit (?P<limit>\d+) ?(?P<limit_unit>[kmg]?b)",
    )
    .certain(HostMemory, "The job used {used} of host memory, above its limit of {limit}, and was killed. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["PBS: job killed"],
        r"PBS: job killed: (?:v|p)?mem (?P<used>\d+)(?P<used_unit>[kmg]?b) exceeded limit (?P<limit>\d+)(?P<limit_unit>[kmg]?b)",
    )
    .certain(
        HostMemory,
        "The PBS job used {used} of host memory, above its limit of {limit}, and was killed. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "TERM_MEMLIMIT",
            "h_vmem",
            "request_memory",
            "over memory limit",
            "beyond physical memory limits",
            "beyond virtual memory limits",
            "exceeding memory limits",
            "exceeding physical memory limits",
        ],
        r"TERM_MEMLIMIT|h_vmem.*(?:exceed|kill)|exceed\w* .*h_vmem|exceeded request_memory|gone over memory limit|(?:running beyond|exceeding) (?:physical |virtual )?memory limits",
    )
    .certain(
        HostMemory,
        "The job reached the host memory limit of its scheduler and was killed. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "killed due to memory pressure",
            "running low on memory",
            "memory usage threshold",
            "addressing the out of memory issue",
            "address the out of memory issue",
        ],
        r"killed due to memory pressure|node running low on memory|exceeds the memory usage threshold|address\w* the out of memory issue: https://docs\.ray",
    )
    .certain(
        HostMemory,
        "Ray's memory monitor killed workers because the node's RAM is nearly full. The GPU is not involved.",
    ),
    Phrase::host(
        Framework::Host,
        &[
            "due to memory pressure",
            "systemd-oomd killed",
            "earlyoom",
            "low memory! at or below",
            "killed by the OOM killer",
            "result 'oom-kill'",
            "run out of application memory",
            "oom-killed",
        ],
        r"Killed \S+ due to memory pressure|systemd-oomd killed|low memory! at or below|earlyoom.*(?:sending SIG|kill)|killed by the OOM killer|result 'oom-kill'|run out of application memory|\boom-killed\b",
    )
    .certain(HostMemory, "The machine ran out of memory and the process was killed. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &[
            "using all available RAM",
            "allocate more memory than is available",
            "Session Restarted (Out of Memory)",
            "killed out of memory",
        ],
        r"crashed after using all available RAM|tried to allocate more memory than is available\. It has restarted|Session Restarted \(Out of Memory\)|\bkilled,? out of memory",
    )
    .certain(
        HostMemory,
        "The session used all of the machine's memory and was restarted. The GPU is not involved.",
    ),
    // Shared memory.
    Phrase::host(
        Framework::Host,
        &["/dev/shm", "torch_shm", "</torch_", "/torch_", "shared memory segment"],
        r"\bshared memory segment\b.{0,80}No space left|No space left on device.*/dev/shm|/dev/shm.*No space left|(?:extend|creating shared memory segment|allocat\w+) /dev/shm/|unable to (?:write to|open|resize) (?:file|shared memory object) </?torch_",
    )
    .unless(r"Too many open files|Permission denied")
    .certain(HostMemory, SHARED),
    Phrase::host(Framework::Host, &["killed by signal"], r"killed by signal: ?Bus error")
        .spanning_lines()
        .likely(HostMemory, SHARED),
    Phrase::host(Framework::Host, &["bus error"], r"\bbus error\b")
        .near(r"DataLoader|/dev/shm|shared memory|num_workers|torch/utils/data")
        .likely(
            HostMemory,
            "A bus error in a data-loader worker means that shared memory (/dev/shm) is full.",
        ),
    Phrase::host(
        Framework::Host,
        &["killed by signal"],
        r"(?:DataLoader )?worker.{0,30} (?:is|was|are) killed by signal:? ?(?:Killed|9\b|SIGKILL)",
    )
    .leads(HostMemory, WORKER),
    Phrase::host(
        Framework::Host,
        &["ObjectStoreFullError", "object store is full"],
        r"ObjectStoreFullError|local object store is full",
    )
        .certain(
            HostMemory,
            "Ray's object store, a share of the node's RAM, is full. The GPU is not involved.",
        ),
    // The operating system.
    Phrase::host(
        Framework::Host,
        &["virtual memory exhausted", "Cannot allocate memory"],
        r"virtual memory exhausted|\[Errno 12\] Cannot allocate memory|(?:fork|mmap|clone)\w*(?:\(\)|\([^)]*\))?(?: failed)?: .*Cannot allocate memory|mmap failed.*Cannot allocate memory|mmap \d+ bytes .*Cannot allocate memory",
    )
    .unless(r"CPUAllocator")
    .certain(HostMemory, "The operating system could not provide host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["mmap failed", "failed to mmap", "unable to mmap"],
        r"mmap failed|(?:failed|unable) to mmap\b",
    )
        .unless(r"CPUAllocator|No such file|Permission denied|Invalid argument")
        .leads(
            HostMemory,
            "A host memory mapping failed: there is not enough RAM or address space (ulimit -v), or the container's limit is too low.",
        ),
    Phrase::host(
        Framework::Host,
        &["RLIMIT_MEMLOCK", "memlock"],
        r"RLIMIT_MEMLOCK|memlock.*(?:too (?:small|low)|limit)",
    )
    .unless(GPU_WORDS)
    .not_near(r"failed to mlock")
    .likely(HostMemory, "The limit on locked memory (ulimit -l) is too low. The GPU is not involved."),
    Phrase::either(Framework::Host, &["Cannot allocate memory"], r"Cannot allocate memory")
        .unless(r"CPUAllocator|cuda|\bgpu|\brmm\b|\bhip|thrust|cumem|device memory|nvenc|cupy|numba|static TLS")
        .not_near(r"EncodeSessionEx|h264_nvenc|hevc_nvenc|av1_nvenc")
        .leads(
            HostMemory,
            "This is the operating system's message when host memory runs out; some drivers use it too.",
        ),
    Phrase::host(
        Framework::Host,
        &[
            "sufficient RAM",
            "not enough RAM",
            "out of RAM",
            "out of system memory",
            "out of system RAM",
            "out of CPU memory",
            "CPU RAM",
            "CPU OOM",
            "out of host memory",
            "out of host RAM",
            "out of CPU RAM",
        ],
        r"(?:in|un)sufficient (?:system )?RAM\b|not enough (?:system |free |CPU )?RAM\b|(?:run|runs|ran|running) out of (?:system |CPU |host )?(?:RAM|system memory|CPU memory|host memory)\b|\bout of (?:CPU|system|host) (?:memory|RAM)\b|OOM[^.]{0,24}\bCPU RAM|CPU OOM\b",
    )
    .leads(HostMemory, "The log names the machine's memory (RAM), not the GPU's."),
    Phrase::host(
        Framework::Host,
        &["os error 8)", "os error 1450", "WinError 1450", "WinError 8]", "Not enough memory resources are available to process"],
        r"\bos error (?:8|1450)\)|WinError (?:8|1450)\]|Not enough memory resources are available to process this command",
    )
    .certain(HostMemory, COMMIT),
    Phrase::host(
        Framework::Host,
        &["memorystatus: kill", "low swap: killing", "EXC_RESOURCE", "jetsam"],
        r"memorystatus: kill|low swap: killing|EXC_RESOURCE .*MEMORY|\bjetsam\b.*\b(?:kill|reason|event)",
    )
    .certain(HostMemory, "macOS killed the process because the machine ran out of memory or the process reached its limit."),
    Phrase::host(Framework::Host, &["mach_vm_map(size="], r"mach_vm_map\(size=(?P<request>\d+)[^)]*\) failed")
        .certain(HostMemory, "macOS could not map {request} of host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &[
            "out of system memory",
            "system is out of memory",
            "swap space exhausted",
            "low on resource: memory",
            "oom killed",
            "exceeded its memory",
            "memory limit exceeded",
            "bad_array_new_length",
        ],
        r"^\W*(?:error: )?out of system memory|system is out of memory|swap space (?:is )?exhausted|low on resource: memory|\boom killed\b|exceeded its memory (?:request|limit)|(?:job|container|cgroup|pod).{0,24}memory limit exceeded|memory limit exceeded.{0,24}(?:container|cgroup|pod|job)|bad_array_new_length",
    )
    .unless(GPU_WORDS)
    .likely(HostMemory, "The machine ran out of memory, or the job used up its share. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["pin memory", "pinning", "page-lock", "pinned memory", "pinned host"],
        r"\b(?:error|fail\w*|unable|could not|couldn't|cannot|can't)\b.{0,40}\b(?:pin|pinning|page-lock(?:ing)?|allocat\w+ (?:\w+ ){0,2}pinned)\b.{0,24}\bmemory\b",
    )
    .unless(r"invalid argument|not (?:supported|permitted)|no CUDA|driver|falling back|\b(?:out of memory|OUT_OF_MEMORY)")
    .not_near(r"\ballocate 0\.00 MB\b|illegal memory access|PxgCudaDeviceMemoryAllocator fail")
    .leads(HostMemory, "Pinned host memory could not be allocated: RAM is low, or the driver's or the system's limit on locked pages was reached."),
    Phrase::host(
        Framework::Host,
        &["ram is", "ram gets", "ram usage", "ram consumption", "ram fills", "cpu ram", "system ram"],
        r"\bram\b (?:\w+ ){0,3}(?:(?:is|was|gets?) (?:\w+ ){0,2}(?:consumed|used|filled|full|exhausted)\b|fills up|grows|(?:increases|climbs|rises|goes up) to (?:9\d|100) ?%|(?:increases|climbs|rises|goes up) until)\W.{0,60}\b(?:kill\w*|deplet\w*|crash\w*|dies|freez\w*)|\bram\b.{0,40}\buntil (?:it )?(?:deplet\w+|(?:is|gets) (?:full|exhausted|depleted)|runs? out)",
    )
    .unless(r"cuda (?:error|out)|\bgpu['’]?s? (?:ram|memory|mem)\b|\b(?:of|on|in) (?:the |my |each |one )?gpu|vram|video ram|\bno longer\b|\bfix")
    .leads(HostMemory, "The log says that the machine's memory (RAM) fills up until the process dies."),
    Phrase::host(
        Framework::Host,
        &["more memory than", "memory usage exceeded", "MEMLIMIT"],
        r"\b(?:used|using|uses) more memory than (?:\w+ ){0,3}(?:requested|allowed|allocated|available|limit|permitted)\b|\bmemory usage exceeded (?:the |its )?(?:memory )?request|(?-i:\bMEMLIMIT\b)",
    )
    .unless(GPU_WORDS)
    .likely(HostMemory, "The job exceeded the host memory that it requested from the scheduler. The GPU is not involved."),
    Phrase::host(Framework::Host, &["mkl_malloc", "OpenBLAS"], r"\bmkl_malloc\b.{0,20}fail|\bOpenBLAS\b.{0,40}(?:allocation (?:still )?failed|failed to allocate|out of memory)")
        .certain(HostMemory, "A math library on the CPU could not allocate host memory. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["ERROR_NOT_ENOUGH_MEMORY", "ERROR_COMMITMENT_LIMIT", "lowmemorykiller", "lmkd:", "memory quota exceeded", "quota vastly exceeded", "Memory limit of"],
        r"\bERROR_NOT_ENOUGH_MEMORY\b|\bERROR_COMMITMENT_LIMIT\b|\blowmemorykiller\b.{0,12}\bKill|\blmkd\b.{0,12}\bKill|\bMemory quota (?:vastly )?exceeded|Memory limit of \d+ ?[KMG]i?B exceeded",
    )
    .unless(GPU_WORDS)
    .certain(HostMemory, "The machine ran out of memory, or the process reached its limit. The GPU is not involved."),
    Phrase::host(Framework::Host, &["Pin memory thread exited"], r"Pin memory thread exited unexpectedly")
        .leads(HostMemory, "The thread that pins host memory for the data loader exited, usually because pinned memory or RAM ran out."),
    Phrase::host(Framework::Host, &["killed as a result of limit of"], r"killed as a result of limit of /")
        .certain(HostMemory, "The container or job reached its memory limit, and the kernel killed a process. The GPU is not involved."),
    Phrase::host(
        Framework::Host,
        &["0xC0000017", "-1073741801", "0xC000012D", "-1073741523"],
        r"\b0xC0000017\b|-1073741801\b|\b0xC000012D\b|-1073741523\b",
    )
    .certain(HostMemory, COMMIT),
    Phrase::host(Framework::Host, &["memory usage of"], r"memory usage of .{0,60}(?:reached|exceeded) (?:the|its) limit.{0,60}\bkilled\b")
        .certain(HostMemory, "The container or job reached its memory limit and was killed. The GPU is not involved."),
    // The same in other languages, as glibc, shells and the kernel's tools translate it.
    Phrase::host(
        Framework::Host,
        &["内存不足", "記憶體不足", "メモリ不足", "메모리 부족", "Arbeitsspeicher", "Mémoire insuffisante", "Memoria insuficiente", "Недостаточно памяти"],
        r"(?:内存不足|記憶體不足|メモリ不足|메모리 부족).{0,24}(?:终止|杀死|終止|強制終了|종료|kill)|Arbeitsspeicher.{0,60}(?:beendet|getötet|abgebrochen)|Mémoire insuffisante.{0,60}(?:tué|arrêté|terminé)|Memoria insuficiente.{0,60}(?:matado|terminado|finalizado)|Недостаточно памяти.{0,60}(?:убит|завершен|завершён)",
    )
    .certain(HostMemory, "The machine ran out of memory and the process was killed. The GPU is not involved."),
    Phrase::either(
        Framework::Host,
        &["已杀死", "已殺死", "強制終了", "죽었음", "Getötet", "Processus arrêté", "Убито", "Terminado (killed)", "Matado", "Abgeschossen", "Ucciso", "Zabity", "Unicestwiony", "Öldürüldü", "Dödad"],
        r"^\W*(?:\S+: \S+ \d+: +\d+ )?(?:已杀死|已殺死|強制終了|죽었음|Getötet|Processus arrêté|Убито|Terminado \(killed\)|Matado|Abgeschossen|Ucciso|Zabity|Unicestwiony|Öldürüldü|Dödad)(?:\s{2,}|\W*$)|:\s*Убито\W*$",
    )
    .leads(HostMemory, KILLED),
    // Killed from outside.
    Phrase::host(Framework::Host, &["status=9/KILL"], r"code=killed, status=9/KILL").leads(HostMemory, KILLED),
    Phrase::either(
        Framework::Host,
        &["Killed"],
        r"^make\S*: .*\] Killed\s*$|^\W*(?:\S+: line \d+:\W*)?(?:\[\d+\]\W*)?(?:\d+ +)?Killed(?:: 9)?(?: {3}|\W*$)|\bzsh: killed\b|\[\d+\]\W*\d+ +killed\b|\bKilled: 9\b|signal: killed\b|(?:it/s|s/it)\b[^\]]{0,80}\] ?Killed\s*$|[\x22'`“«「]Killed[\x22'`”»」]",
    )
    .unless(r"cuda|\bgpu\b|cumem|device memory")
    .leads(HostMemory, KILLED),
    Phrase::either(
        Framework::Host,
        &[
            "signal 9",
            "signal: 9",
            "SIGKILL",
            "code 137",
            "code: 137",
            "code:137",
            "code = 137",
            "code=137",
            "code:    137",
            "code is 137",
            "code (137",
            "status (137",
            "status 137",
            "status: 137",
            "code -9",
            "code: -9",
            "code : -9",
            "code  : -9",
            "code = -9",
            "code=-9",
            "status -9",
            "errno 137",
            "due to 137",
        ],
        r"exit\w* due to 137\b|(?:code|status|errno)\W{0,6}(?:is |of )?(?:137|-9)\b|\bsignal:? 9\b|SIGKILL",
    )
    .unless(r"\b(?:SIGTERM|sends?|sending|sent|trap|handler)\b.*SIGKILL|cumem|kill -s|kill -9|potential root causes|\b(?:drained|maintenance|preempt\w*|cancel\w*|time ?limit|timed out)\b")
    .not_near(r"Reason: +(?:Error|Completed|Evicted)\b|\b(?:no|without|not (?:see|find|any))\b[^.;]{0,40}\boom[ -]?kill\w*|\boom[ -]?kill\w*[^.;]{0,20}\bnot\b")
    .leads(HostMemory, KILLED),
    Phrase::host(Framework::Host, &["[code=9]", "[code=137]", "[code=-9]"], r"^FAILED: \[code=(?:9|137|-9)\]")
        .leads(HostMemory, KILLED),
    Phrase::either(
        Framework::Host,
        &["status 9", "status: 9", "code 9", "code: 9", "code=9", "code = 9", "Error 9"],
        r"\b(?:exit(?:ed|s)?|terminated|died|ended|status|make\S*:.*)\b.{0,40}\b(?:status|code|Error)\W{0,3}9\b[^\d.]*",
    )
    .near(r"\bmemory\b|\bRAM\b|内存|swap|ninja|nvcc|cicc|ptxas|cc1plus")
    .leads(HostMemory, KILLED),
    // Drivers' own words for host memory, and runtimes that do not say whose memory it was.
    Phrase::either(
        Framework::Host,
        &["OUT_OF_HOST_MEMORY", "OutOfHostMemory", "\"out of host memory\"", "vkAllocateMemory failed -1"],
        r"(?:CL|VK_ERROR|PI_ERROR|UR_RESULT_ERROR|ZE_RESULT_ERROR)_OUT_OF_HOST_MEMORY|(?:^|[^\w])OUT_OF_HOST_MEMORY\b|OutOfHostMemory|.out of host memory|vkAllocateMemory failed -1\b",
    )
    .unless(r"\bis returned\b|\bif there is a failure\b|\bspecification\b")
    .leads(
        HostMemory,
        "The driver returned its out-of-host-memory status, which OpenCL, Vulkan and SYCL drivers also use for some other failures.",
    ),
    Phrase::either(
        Framework::Host,
        &["MemoryError"],
        r"(?:^|[^\w.])(?:\w+\.)*\bMemoryError\b(?:\s*:?\s*$|: (?:Unable|Could not|Cannot|Failed|bad alloc|Out of memory|Allocation)\b)",
    )
        .unless(r"bad_alloc|cuda|\bgpu|\brmm\b|\bhip|thrust|cumem|device memory|nvenc|cupy|numba|pycuda")
        .not_near(GPU_FRAMES)
        .leads(HostMemory, PYTHON),
    Phrase::either(Framework::Host, &["bad_alloc", "bad allocation"], r#"(?:bad_alloc|bad allocation)['"]?\W*$"#)
        .unless(GPU_WORDS)
        .not_near(r"thrust::|rmm::|cudaErrorMemoryAllocation|rmm/|get_temporary_buffer")
        .leads(HostMemory, "C++ throws std::bad_alloc when host memory runs out; some GPU libraries throw it too."),
    // A title or a sentence, in a text that is about memory.
    Phrase::host(Framework::Host, &["killed"], r"\bkilled (?:after|during|while|at|when|in the middle|right|halfway|around|on) \w")
        .unless(r"time ?limit|timeout|wall ?time|SIGTERM|by (?:me\b|(?:the |a )?user|hand)|manually|Ctrl|cuda|vram")
        .near(r"\bmemory\b|\bRAM\b|\boom\b|swap")
        .leads(HostMemory, KILLED),
];

family!();

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;
    use makeroom_explain::{Cause, Certainty};

    use crate::facts::{Facts, Resource};
    use crate::find::facts_in;

    fn stated(text: &str) -> (Facts, Certainty, bool) {
        let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
        assert_eq!(facts.framework_id(), "host", "{text}");
        assert_eq!(facts.statements[0].cause, Cause::HostMemory, "{text}");
        let (certainty, leads) = (facts.statements[0].certainty, facts.statements[0].leads);
        (facts, certainty, leads)
    }

    #[test]
    fn words_that_are_about_host_memory_alone() {
        for text in [
            "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading \"c10.dll\"",
            "OSError: [WinError 1455] 页面文件太小，无法完成操作。",
            "safetensors_rust.SafetensorError: Die Auslagerungsdatei ist zu klein, um diesen Vorgang durchzuführen. (os error 1455)",
            "OSError: [WinError 1455] El archivo de paginación es demasiado pequeño para completar la operación",
            "OSError: [WinError 1455] Le fichier de pagination est insuffisant pour terminer cette opération",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch. Some of your processes may have been killed",
            "slurmstepd: error: Detected 2 oom_kill events in StepId=77.0. Some of the step tasks have been OOM Killed.",
            "srun: error: node7: task 3: Out Of Memory",
            "=>> PBS: job killed: mem 6291456kb exceeded limit 4194304kb",
            "systemd-oomd[644]: Considered 12 cgroups for killing, top candidates were:",
            "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
            "      Reason:       OOMKilled",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "(raylet) node_manager.cc:3064: 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
            "systemd-oomd[812]: Killed /user.slice/user-1000.slice due to memory pressure for /user.slice being 71.00% > 50.00%",
            "app.service: Failed with result 'oom-kill'.",
            "OSError: [Errno 28] No space left on device: '/dev/shm/torch_99'",
            "RuntimeError: unable to write to file </torch_1200_33>",
            "box:1:2 [6] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes",
            "java.lang.OutOfMemoryError: Java heap space",
            "OSError: [Errno 12] Cannot allocate memory",
            "fatal error: CALL_AND_RETRY_LAST Allocation failed - JavaScript heap out of memory",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate array with shape (90000, 90000) and data type float64",
            "slurmstepd: error: Detected 1 oom-kill event(s) in step 12.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.",
            "job killed: mem job total 9000 kb exceeded limit 8000 kb",
            "Not enough memory resources are available to process this command. (os error 8)",
            "Insufficient system resources exist to complete the requested service. (os error 1450)",
            "kernel: memorystatus: killing_specific_process pid 77 [python]",
            "kernel: low swap: killing largest compressed process with pid 77 (python)",
            "*** mach_vm_map(size=1073741824) failed (error code=3)",
            "Task in /slurm/uid_7/job_9 killed as a result of limit of /slurm/uid_7/job_9",
        ] {
            assert_eq!(stated(text).1, Certainty::Certain, "{text}");
        }
        for text in [
            "Evicted: The node was low on resource: memory.",
            "container job-7: oom killed",
            "error: Job memory limit exceeded",
            "terminate called after throwing an instance of 'std::bad_array_new_length'",
        ] {
            assert_eq!(stated(text).1, Certainty::Likely, "{text}");
        }
    }

    #[test]
    fn a_list_of_guesses_decides_nothing() {
        let text = "(raylet) Raylet is terminated. Possible reasons include: (1) SIGKILL by the user or system OOM killer, (2) Invalid memory access";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.statements.len(), facts.statements[0].cause), (1, Cause::Undetermined));
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            (
                "numpy.core._exceptions.MemoryError: Unable to allocate 31.5 GiB for an array with shape (65536, 64512) and data type float64",
                Bytes::mib(32256),
            ),
            ("Error: cannot allocate vector of size 2.0 Gb", Bytes::gib(2)),
            ("memory allocation of 1073741824 bytes failed", Bytes::gib(1)),
            (
                "error: (-4:Insufficient memory) Failed to allocate 1048576 bytes in function 'OutOfMemoryError'",
                Bytes::mib(1),
            ),
        ] {
            let (facts, certainty, _) = stated(text);
            assert_eq!((certainty, facts.request), (Certainty::Certain, Some(bytes)), "{text}");
        }
    }

    #[test]
    fn vague_words_are_a_lead() {
        for text in [
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "MemoryError",
            "LLVM ERROR: out of memory",
            "clCreateContext(): CL_OUT_OF_HOST_MEMORY",
            "pyopencl._cl.RuntimeError: clEnqueueReadBuffer failed: OUT_OF_HOST_MEMORY",
            "train.sh: line 12:  4242 Killed                  python train.py",
            "**Killed**",
            "zsh: killed     python train.py",
            "Killed: 9",
            "worker exited with exit code 137",
            "webui-1 exited with code 137",
            "      Exit Code:    137",
            "exitcode  : -9 (pid: 4100)",
            "traceback : Signal 9 (SIGKILL) received by PID 4100",
            "launch.py:315: process 4100 exits with return code = -9",
            "RuntimeError: DataLoader worker (pid 4100) is killed by signal: Killed.",
            "make: *** [Makefile:12: train] Killed",
            "npm ERR! errno 137",
            "app.service: Main process exited, code=killed, status=9/KILL",
            "RuntimeError: Pin memory thread exited unexpectedly",
        ] {
            let (facts, certainty, leads) = stated(text);
            assert!(certainty == Certainty::Possible && leads, "{text}");
            assert!(matches!(facts.resource, Resource::Unknown | Resource::Host), "{text}");
        }
    }

    #[test]
    fn a_crash_with_137_is_not_about_memory() {
        for reason in ["Error", "Evicted"] {
            assert!(facts_in(&format!("      Reason:       {reason}\n      Exit Code:    137")).is_none());
            assert!(facts_in(&format!("    Reason: {reason}\n    Exit Code: 137")).is_none());
        }
        let (_, certainty, _) = stated("      Reason:       OOMKilled\n      Exit Code:    137");
        assert_eq!(certainty, Certainty::Certain);
        assert!(facts_in("exit code 1379").is_none());
        assert!(facts_in("\"name\": \"oomkilled-85d9\",").is_none());
        assert!(facts_in("```diff\n+    Killed\n+The kernel ends the process").is_none());
    }

    #[test]
    fn words_of_a_gpus_library_are_not_taken() {
        let text = "MemoryError: std::bad_alloc: cudaErrorMemoryAllocation: out of memory";
        assert_ne!(facts_in(text).unwrap().framework_id(), "host");
        assert!(facts_in("Killed the old process before training").is_none());
        let text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes. Error code 12 (Cannot allocate memory)";
        assert_eq!(facts_in(text).unwrap().framework_id(), "pytorch");
    }

    #[test]
    fn a_scheduler_names_its_limit() {
        let facts = facts_in("=>> PBS: job killed: mem 6291456kb exceeded limit 4194304kb").unwrap();
        let summary = &facts.statements[0].summary;
        assert!(summary.contains("6.00 GiB") && summary.contains("4.00 GiB"), "{summary}");
    }

    #[test]
    fn kills_in_other_languages_and_by_number() {
        for text in [
            "Nicht genügend Arbeitsspeicher: Prozess 812 (python3) wurde beendet",
            "内存不足：已终止进程 812 (python3)",
            "python3 run.py\n已杀死",
            "python3 run.py\nGetötet",
            "./run.sh: Zeile 3:   812 Getötet                python3 run.py",
            "worker ended with exit code -1073741801",
            "memory usage of task 7 reached the limit 4194304 kB; task killed",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(facts.statements[0].cause, Cause::HostMemory, "{text}");
        }
        assert!(facts_in("job ended with exit code 137\nno oom-killer line in dmesg").is_none());
        assert!(facts_in("El proceso fue Matado por el usuario y sigue").is_none());
    }
}
