"""What criterion measured, as kept samples: `criterion.py COMMAND GROUP... > measurements/NAME.json`.

Run from the root, after `cargo bench`; a group is what a benchmark file calls one.
"""

import datetime
import json
import os
import pathlib
import platform
import sys

target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
command, groups = sys.argv[1], sys.argv[2:]
series = {}
for found in sorted(target.glob("criterion/**/new/benchmark.json")):
    named = json.loads(found.read_text())
    if named["group_id"] not in groups:
        continue
    sample = json.loads((found.parent / "sample.json").read_text())
    samples = [round(time / count, 2) for time, count in zip(sample["times"], sample["iters"])]
    name = ": ".join(filter(None, [named["function_id"], named["group_id"]]))
    series.setdefault((named["group_id"], name), []).append([float(named["value_str"]), samples])
missing = set(groups) - {group for group, _ in series}
if missing:
    sys.exit(f"no group {', '.join(sorted(missing))} in {target}/criterion: run `{command}` first")
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
