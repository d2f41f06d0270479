"""Compiles every committed PTX to machine code, and fails where a kernel loses what it was written for.

A kernel whose registers spill runs from memory, and one whose wgmma are serialised (warning C7513 and its kin) waits for
each of them; both still give the right result. One whose warpgroups ask for more registers than the block was given when it
began waits for them for ever. No GPU is needed: ptxas comes from the wheel in requirements-lint.txt. PTX for
all devices is compiled for an A100 and for Hopper, PTX for Hopper's own instructions for Hopper.
"""

import concurrent.futures
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHEEL = "nvidia-cuda-nvcc-cu12"
DEVICES = {"compute_80": ["sm_80", "sm_90a"], "compute_90a": ["sm_90a"]}


def find_ptxas():
    """The assembler in the wheel, which has to be the pinned one."""
    pinned = (HERE / "requirements-lint.txt").read_text().strip()
    try:
        found = f"{WHEEL}=={importlib.metadata.version(WHEEL)}"
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if pinned != found:
        raise SystemExit(f"the assembler found is {found}; install what requirements-lint.txt pins: {pinned}")
    return next(f.locate() for f in importlib.metadata.files(WHEEL) if f.name == "ptxas")


def assemble(ptxas, ptx, device):
    """What the assembler says: a line for each kernel (name, registers, bytes of stack and of spills), and its warnings."""
    command = [ptxas, "-v", "-arch", device, HERE / ptx, "-o", "/dev/null"]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode != 0:
        raise SystemExit(f"{ptx} for {device}: {told.stderr}")
    return read(told.stderr)


def read(told):
    """Kernels and warnings of what `ptxas -v` printed."""
    kernels, warnings = [], []
    for line in told.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernels.append({"name": found[1], "stack": 0, "spills": 0, "registers": None})
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            kernels[-1]["stack"] = int(found[1])
            kernels[-1]["spills"] = int(found[2]) + int(found[3])
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[-1]["registers"] = int(found[1])
        elif "warning" in line or re.search(r"\bC\d{4}\b", line):
            warnings.append(line.strip())
    return kernels, warnings


def asked_for(ptx, registers):
    """Kernels whose warpgroups exchange registers: what all ask for in the end, and what they began with, for a thread of each."""
    for entry in ptx.split(".entry ")[1:]:
        fewer, more = (re.search(rf"setmaxnreg.{way}\.sync\.aligned\.u32 +(\d+);", entry) for way in ("dec", "inc"))
        if not fewer and not more:
            continue
        name = entry[: entry.index("(")]
        groups = int(re.search(r"\.maxntid (\d+)", entry)[1]) // 128
        # One warpgroup fetches and gives registers away, the others take them.
        yield name, int(fewer[1]) + (groups - 1) * int(more[1]), groups * registers[name]


def main():
    ptxas = find_ptxas()
    listed = json.loads((HERE / "manifest.json").read_text())["kernels"]
    jobs = [(kernel["ptx"], device) for kernel in listed for device in DEVICES[kernel["architecture"]]]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda job: assemble(ptxas, *job), jobs))
    wrong = []
    for (ptx, device), (kernels, warnings) in zip(jobs, results):
        if not kernels or any(kernel["registers"] is None for kernel in kernels):
            raise SystemExit(f"{ptx} for {device}: the assembler's words are not understood")
        wrong += [f"{ptx} for {device}: {warning}" for warning in warnings]
        registers = {kernel["name"]: kernel["registers"] for kernel in kernels}
        for name, asked, given in asked_for((HERE / ptx).read_text(), registers):
            if asked > given:
                wrong.append(f"{name} for {device}: its warpgroups ask for {asked} registers, one thread of each; they have "
                             f"{given}, and would wait for ever")
        for kernel in kernels:
            print(f"{device:8}{kernel['name']:32}{kernel['registers']:4} registers")
            if kernel["spills"] or kernel["stack"]:
                wrong.append(f"{kernel['name']} for {device}: {kernel['spills']} bytes are spilled, "
                             f"{kernel['stack']} bytes of stack are used; it must be none")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(jobs)} compilations, no spills and no warnings")


if __name__ == "__main__":
    main()
