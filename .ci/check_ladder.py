"""Runs the ladder and reads its JSON report: all rungs equal to the bit, and the cache worth its name.

    check_ladder.py LADDER
"""
import json
import subprocess
import sys

# A shared machine may take a core away in the middle of a rung: the time may be tried again, the bits may not.
for attempt in range(3):
    report = subprocess.run([sys.argv[1], "--json", "--tokens", "512"], check=True, capture_output=True, text=True)
    rungs = json.loads(report.stdout)["rungs"]
    assert all(r["tokens_identical"] and r["logits_identical"] for r in rungs), rungs
    contiguous = next(r for r in rungs if "slab" in r["change"])
    ratio = contiguous["tokens_per_second"] / rungs[0]["tokens_per_second"]
    print(f"contiguous cache: {ratio:.1f} times the naive loop")
    if ratio >= 20:
        break
else:
    sys.exit("the contiguous cache should be at least 20 times as fast as the naive loop")
