"""Reads the ladder's JSON report: all rungs equal to the bit, and the cache worth its name."""
import json
import sys

rungs = json.load(sys.stdin)["rungs"]
assert all(r["tokens_identical"] and r["logits_identical"] for r in rungs), rungs
contiguous = next(r for r in rungs if "slab" in r["change"])
ratio = contiguous["tokens_per_second"] / rungs[0]["tokens_per_second"]
print(f"contiguous cache: {ratio:.0f} times the naive loop")
assert ratio >= 20, "the contiguous cache should be at least 20 times as fast as the naive loop"
