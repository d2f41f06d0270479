"""Compiles every CUDA source to PTX with one pinned compiler, and lists what came of what in manifest.json.

No GPU, driver or toolkit is needed: NVRTC comes from the wheel in requirements.txt.
"""

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHEEL = "nvidia-cuda-nvrtc-cu12"
FLAGS = ["--std=c++17"]


def architecture_of(name):
    """What a source is compiled for: anything from an A100 on, unless it is about Hopper's own instructions."""
    return "compute_90a" if "hopper" in name else "compute_80"


def load_nvrtc():
    """The compiler's library; it finds its builtins only if they are loaded already."""
    for name in ("libnvrtc-builtins.so.12.4", "libnvrtc.so.12"):
        found = [f for f in importlib.metadata.files(WHEEL) if f.name == name]
        library = ctypes.CDLL(str(found[0].locate()), mode=ctypes.RTLD_GLOBAL)
    return library


def to_ptx(nvrtc, name, source, headers):
    """The PTX of one source; headers (name to text) are given from memory, so that no path matters."""

    def checked(code):
        if code != 0:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise SystemExit(f"{name}: {nvrtc.nvrtcGetErrorString(code).decode()}")

    def text(of_size, of_text):
        size = ctypes.c_size_t()
        checked(of_size(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        checked(of_text(program, buffer))
        return buffer.value.decode()

    def strings(items):
        return (ctypes.c_char_p * len(items))(*(item.encode() for item in items))

    program = ctypes.c_void_p()
    names, texts = strings(list(headers)), strings(list(headers.values()))
    checked(nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names))
    flags = [f"--gpu-architecture={architecture_of(name)}", *FLAGS]
    code = nvrtc.nvrtcCompileProgram(program, len(flags), strings(flags))
    log = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    if log.strip():  # a warning is as bad as an error
        raise SystemExit(log)
    checked(code)
    ptx = text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.strip("\n") + "\n"


def compile_all():
    """Every file that is to be committed: its path below this folder, and its text."""
    sha256 = lambda text: hashlib.sha256(text.encode()).hexdigest()
    read = lambda pattern: {p.name: p.read_text() for p in sorted((HERE / "cuda").glob(pattern))}
    headers, nvrtc = read("*.cuh"), load_nvrtc()
    files, kernels = {}, []
    for name, source in read("*.cu").items():
        ptx = to_ptx(nvrtc, name, source, headers)
        to = f"ptx/{name.removesuffix('.cu')}.ptx"
        files[to] = ptx
        kernels.append({
            "source": f"cuda/{name}", "architecture": architecture_of(name), "source_sha256": sha256(source), "ptx": to, "ptx_sha256": sha256(ptx)})
    manifest = {
        "compiler": f"{WHEEL}=={importlib.metadata.version(WHEEL)}",
        "flags": FLAGS,
        "flags_sha256": sha256("\n".join(FLAGS)),
        "headers": [{"path": f"cuda/{n}", "sha256": sha256(t)} for n, t in headers.items()],
        "kernels": kernels,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed file differs")
    arguments = parser.parse_args()
    pinned = (HERE / "requirements.txt").read_text().strip()
    if pinned != f"{WHEEL}=={importlib.metadata.version(WHEEL)}":
        raise SystemExit(f"install what requirements.txt pins: {pinned}")
    files = compile_all()
    if not arguments.check:
        for path, text in files.items():
            (HERE / path).write_text(text)
        return
    wrong = [p for p, t in files.items() if not (HERE / p).exists() or (HERE / p).read_bytes() != t.encode()]
    wrong += [f"ptx/{p.name}" for p in (HERE / "ptx").glob("*.ptx") if f"ptx/{p.name}" not in files]
    if wrong:
        sys.exit(f"not what the sources compile to: {', '.join(wrong)}. Run compile.py and commit what it writes.")
    print(f"{len(files) - 1} sources compile to the committed bytes")


if __name__ == "__main__":
    main()
