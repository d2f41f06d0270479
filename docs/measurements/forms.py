"""What answers of a given form take from others: servers in turn, each started for its loads and stopped again.

    python3 docs/measurements/forms.py --ladder before=old/ladder --ladder after=target/release/ladder --model q4_1.gguf \
        --rounds 3 --json forms.json

Loads: one text alone; the same text beside an answer whose form takes some thirty milliseconds a token; eight answers of an
ordinary form together. Samples are the gaps between a text's pieces in ms, and tokens a second.
"""

import argparse
import http.client
import json
import pathlib
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import beside

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "08-serving/tests/clients"))
from served import served  # noqa: E402

TOKENS = 128
STORY = "Once upon a time there was a ship that sailed to the north. " * 4


def stream(address, **body):
    """The moments at which the pieces of an answer's text come, and how many tokens it has."""
    body = dict(prompt=STORY, max_tokens=TOKENS, temperature=0, stream=True, stream_options={"include_usage": True}, **body)
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    moments, tokens = [], 0
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    for line in answer:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            assert "error" not in event, event
            # How it ended and what it took are told at once after the last piece.
            if any(choice["text"] for choice in event["choices"]):
                moments.append(time.monotonic())
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    return moments, tokens


def slow():
    """Each rule may be nothing and lead to the next, so there are very many ways to read a text."""
    rules = "".join(f'r{i}: r{i + 1}? "b"?\n' for i in range(1, 250))
    return {"grammar": f'start: (r1 "a" | r1 "b")+ "!"\n{rules}r250: "c"\n'}


ORDINARY = {"json": {
    "type": "object", "required": ["name", "age", "email", "tags", "address"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    }}}


def together(*calls):
    with ThreadPoolExecutor(len(calls)) as threads:
        return [answer.result() for answer in [threads.submit(call) for call in calls]]


def gaps(moments):
    return [round(1000 * (after - before), 2) for before, after in zip(moments, moments[1:])]


def machine(ladder, model):
    """As the program's own bench names it."""
    load = ["--prefill", "1", "--decode", "0", "--samples", "1"]
    return json.loads(beside.run(ladder, "bench", "--device", "cpu", "--model", model, *load, "--json"))["machine"]


def measure(address):
    text = lambda: stream(address, ignore_eos=True)
    text(), stream(address, structured_outputs=slow()), stream(address, structured_outputs=ORDINARY)
    sample = {"alone": gaps(text()[0])}
    beside, held = together(text, lambda: stream(address, structured_outputs=slow()))
    sample["beside a slow form"] = gaps(beside[0])
    sample["of the slow form"] = gaps(held[0])
    began = time.monotonic()
    answers = together(*[lambda: stream(address, structured_outputs=ORDINARY)] * 8)
    sample["eight of a form, tokens/s"] = round(sum(tokens for _, tokens in answers) / (time.monotonic() - began), 1)
    return sample


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ladder", action="append", required=True, metavar="NAME=PROGRAM")
    options.add_argument("--model", required=True)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json")
    options = options.parse_args()
    samples = {}
    for _ in range(options.rounds):
        for name, ladder in (named.split("=", 1) for named in options.ladder):
            with served(ladder, "--model", options.model) as address:
                samples.setdefault(name, []).append(measure(address))
    for name, rounds in samples.items():
        for what in rounds[0]:
            found = [one[what] for one in rounds]
            if isinstance(found[0], list):
                sorted_gaps = sorted(sum(found, []))
                found = [f"median {statistics.median(sorted_gaps):.2f} ms",
                         *(f"p{p} {sorted_gaps[len(sorted_gaps) * p // 100]} ms" for p in (90, 99))]
            print(f"{name:10} {what:28} {found}")
    if options.json:
        with open(options.json, "w") as out:
            json.dump(dict(machine=machine(ladder, options.model), system=platform.platform(),
                           model=options.model.rsplit("/", 1)[-1], samples=samples), out)
            out.write("\n")


if __name__ == "__main__":
    main()
