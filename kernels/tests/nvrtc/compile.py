"""Compiles CUDA C++ files to PTX with NVRTC, which PyPI has as nvidia-cuda-nvrtc-cu12: compile.py CAPABILITY FILE..."""

import ctypes
import glob
import os
import sys

import nvidia.cuda_nvrtc

folder = os.path.join(list(nvidia.cuda_nvrtc.__path__)[0], "lib")
nvrtc = ctypes.CDLL(glob.glob(os.path.join(folder, "libnvrtc.so.*"))[0])
nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p


def check(code, what, log=""):
    if code != 0:
        sys.exit(f"{what}: {nvrtc.nvrtcGetErrorString(code).decode()}\n{log}")


def text(program, size_of, get):
    size = ctypes.c_size_t()
    check(size_of(program, ctypes.byref(size)), "size")
    buffer = ctypes.create_string_buffer(size.value)
    check(get(program, buffer), "text")
    return buffer.value.decode()


capability, files = sys.argv[1], sys.argv[2:]
# As CubeCL asks for it on a GPU.
arch = f"--gpu-architecture=compute_{capability}{'a' if int(capability) >= 90 else ''}"
options = (ctypes.c_char_p * 2)(arch.encode(), b"-lineinfo")
for file in files:
    source = open(file, "rb").read()
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, file.encode(), 0, None, None), file)
    code = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    check(code, file, log)
    ptx = text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    if ".entry" not in ptx:
        sys.exit(f"{file}: the PTX has no kernel")
    with open(os.path.splitext(file)[0] + ".ptx", "w") as out:
        out.write(ptx)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    print(f"{os.path.basename(file)}: {len(ptx)} bytes of PTX")
