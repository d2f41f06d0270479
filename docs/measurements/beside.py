"""What `beside_llama.py`, `beside_openvino.py` and `roof.py` share: sides that take turns, and their samples kept."""

import argparse
import json
import platform
import statistics
import subprocess
import sys

# llama.cpp's two ways, of which the faster one counts.
LLAMA = ["llama.cpp, flash attention on", "llama.cpp, flash attention off"]


def parser(description):
    """Options that every comparison has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ladder", default="target/release/ladder")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--weights", default="stored", help="what this project keeps weights as")
    options.add_argument("--keep", default="never", help="whether this project keeps packed weights in a file, and reads them there")
    options.add_argument("--json", help="where to write the samples")
    options.add_argument("files", nargs="+", metavar="NAME=FILE.gguf")
    return options


def run(*command):
    """What a command prints; this program ends where one fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def ladder(options, file, load, depth, kv):
    """This project's bench, two samples of one load: the report, and its one run. The first sample is for the pages of
    the file to arrive; peers run such a one of their own accord."""
    report = json.loads(
        run(options.ladder, "bench", "--model", file, "--weights", options.weights, "--threads", str(options.threads),
            "--keep", options.keep, "--samples", "2", "--kv", kv, "--prefill", str(load["prefill"]), "--decode", str(load["decode"]),
            "--depth", str(depth), "--batch", str(load["batch"]), "--json"))
    [one] = report["runs"]
    return report, one


def keep(options, machine, samples, **more):
    """Samples to the file that was named."""
    report = dict(machine=machine, system=platform.platform(), threads=options.threads, **more, samples=samples)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(report, out, indent=1)
            out.write("\n")


def faster(kept, sides):
    """The samples of whichever of these sides is the fastest, all rounds together."""
    return max((kept[side] for side in sides), key=statistics.median)


def ratio(ours, theirs):
    """How many times as fast one side was: the median of the rounds' own ratios, as both had the same minute in each."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def compare(options, loads, sides, sample):
    """Asks `sample(file, load, kept)` to add one sample of each side to what is kept, round by round; the first of
    `sides` is the peer in whichever ways it may be run, and not every side need have every load. Samples go to the file
    that was named, medians and ratios to the screen."""
    files = dict(file.split("=", 1) for file in options.files)
    samples = {f"{name}: {load}": {} for name in files for load in loads}
    machine = None
    for turn in range(options.rounds):
        for name, file in files.items():
            for load, sizes in loads.items():
                machine = sample(file, sizes, lambda side, rate: samples[f"{name}: {load}"].setdefault(side, []).append(rate))
                print(f"round {turn + 1} of {options.rounds}: {name}, {load}", file=sys.stderr)
    keep(options, machine, samples, unit="tokens a second")
    for what, kept in samples.items():
        peer, ours = faster(kept, sides[0]), [kept[side] for side in sides[1:] if side in kept]
        ratios = ", ".join(f"{statistics.median(rates):7.0f} ({ratio(rates, peer):.2f}x)" for rates in ours)
        print(f"{what:40} {statistics.median(peer):7.0f} {ratios}")
