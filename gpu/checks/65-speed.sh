# The host time of an allocation and a free with the pool is at most a third of that with PyTorch's native allocator,
# measured in one process and one run, without Python.
#
# Needs a C++ compiler, CUDA's headers, and libmakeroom_pool (cargo build --release -p makeroom-pool-c), in the
# directory of makeroom or named by MAKEROOM_POOL_LIBRARY.

root=$(dirname "$GPU")
library=${MAKEROOM_POOL_LIBRARY:-$(dirname "$MAKEROOM")/libmakeroom_pool.so}

# The flags for programs that use PyTorch's C++ interface; empty if CUDA's headers are missing.
torch_flags() {
    "$PYTHON" - <<'PYTHON'
import os, shutil, sysconfig, torch
from torch.utils import cpp_extension

compiler = shutil.which("nvcc")
homes = [cpp_extension.CUDA_HOME] if cpp_extension.CUDA_HOME else []
homes += [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))] if compiler else []
homes += [os.path.join(sysconfig.get_paths()["purelib"], "nvidia", name) for name in ("cuda_runtime", "cu13")]
# PyTorch's own packages may contain the runtime's headers without those of the compiler, which the former include.
needed = ("cuda_runtime_api.h", os.path.join("crt", "host_config.h"))
places = [os.path.join(home, "include") for home in homes]
cuda = [place for place in places if all(os.path.exists(os.path.join(place, name)) for name in needed)]
if cuda:
    folders = cpp_extension.include_paths() + cuda[:1]
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    flags = [f"-I{folder}" for folder in folders] + [f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-lc10_cuda", "-lc10"]
    print(" ".join(flags))
PYTHON
}

speed() {
    local flags
    read -ra flags <<<"$(torch_flags)"
    if ! command -v c++ >/dev/null || [ ${#flags[@]} -eq 0 ]; then
        report skipped speed "no C++ compiler, or no CUDA headers"
        return
    fi
    if ! c++ -std=c++17 -O2 "$PROGRAMS/pool_speed.cpp" -I "$root/crates/makeroom-pool-c/include" "$library" \
        -Wl,-rpath,"$(dirname "$library")" -Wl,--allow-shlib-undefined "${flags[@]}" -o "$WORK/pool_speed" 2>"$WORK/pool_speed.build"; then
        report FAILED speed "build failed: $(grep -m1 error "$WORK/pool_speed.build")"
        return
    fi
    plain pool_speed "$WORK/pool_speed"
    local result="run=$WORK/pool_speed.plain.out" text status=FAILED
    text=$(ask '", ".join("%s %.0f of %.0f ns" % (name, run[name]["pool_ns"], run[name]["native_ns"]) for name in run)' "$result")
    if holds 'all(3 * run[name]["pool_ns"] <= run[name]["native_ns"] for name in run)' "$result"; then status=ok; fi
    report $status speed "pool / native, per allocate-and-free pair: $text $(tail -1 "$WORK/pool_speed.plain.err")" \
        worst="$(ask 'max(run[name]["pool_ns"] / run[name]["native_ns"] for name in run)' "$result")"
}

if [ -e "$library" ]; then
    speed
else
    report skipped speed "no $library: cargo build --release -p makeroom-pool-c"
fi
