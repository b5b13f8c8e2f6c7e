"""The compiler flags for C++ programs that use PyTorch's own C++ interface."""

import os
import shutil
import sysconfig


def torch_flags():
    """Empty if CUDA's headers are missing."""
    import torch
    from torch.utils import cpp_extension

    compiler = shutil.which("nvcc")
    homes = [cpp_extension.CUDA_HOME] if cpp_extension.CUDA_HOME else []
    homes += [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))] if compiler else []
    homes += [os.path.join(sysconfig.get_paths()["purelib"], "nvidia", name) for name in ("cuda_runtime", "cu13")]
    # PyTorch's own packages may contain the runtime's headers without those of the compiler, which the former include.
    needed = ("cuda_runtime_api.h", os.path.join("crt", "host_config.h"))
    places = [os.path.join(home, "include") for home in homes]
    cuda = [place for place in places if all(os.path.exists(os.path.join(place, name)) for name in needed)]
    if not cuda:
        return []
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    return [
        *(f"-I{directory}" for directory in cpp_extension.include_paths() + cuda[:1]),
        f"-L{libraries}", f"-Wl,-rpath,{libraries}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-lc10_cuda", "-lc10",
    ]
