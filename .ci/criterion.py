"""What criterion measures, as kept samples: `criterion.py COMMAND GROUP... > measurements/NAME.json`.

Runs the command, `cargo bench` with its arguments, from the root; a group is what a benchmark file calls one. What an
earlier run left of a group goes first: criterion never takes away what is not measured any more.
"""

import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys

target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
command, groups = sys.argv[1], sys.argv[2:]


def measured():
    """What there is of the groups: the folder, and what it says that it is of."""
    for found in sorted(target.glob("criterion/**/new/benchmark.json")):
        named = json.loads(found.read_text())
        if named["group_id"] in groups:
            yield found.parent, named


for folder, _ in measured():
    shutil.rmtree(folder)
subprocess.run(shlex.split(command), check=True, stdout=sys.stderr)
series = {}
for folder, named in measured():
    sample = json.loads((folder / "sample.json").read_text())
    samples = [round(time / count, 2) for time, count in zip(sample["times"], sample["iters"])]
    name = ": ".join(filter(None, [named["function_id"], named["group_id"]]))
    series.setdefault((named["group_id"], name), []).append([float(named["value_str"]), samples])
missing = set(groups) - {group for group, _ in series}
if missing:
    sys.exit(f"`{command}` measures no group {', '.join(sorted(missing))}")
info = dict(line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line)
info = {name.strip(): value.strip() for name, value in info.items()}
flags = info.get("flags", "").split()
machine = {
    "cpu": info.get("model name", platform.machine()),
    "cores": os.cpu_count(),
    "simd": next((n for n, f in [("AVX-512", "avx512f"), ("AVX2", "avx2")] if f in flags), "other"),
    "os": platform.system().lower(),
    "date": str(datetime.date.today()),
}
drawn = [
    {"name": name, "unit": "ns", "points": sorted(points)}
    for (_, name), points in sorted(series.items())
]
print(json.dumps({"machine": machine, "command": command, "series": drawn}, indent=2))
