#!/usr/bin/env python3
"""Two servers behind NVIDIA Dynamo: time to the first token where requests go by what servers know, and where they go in turn.

    cargo build --release --bin ladder
    (cd 08-serving/dynamo && cargo build --release)
    docs/measurements/behind_dynamo.py --json 08-serving/measurements/behind_dynamo.json

Each server has a core. So many texts begin differently, each is asked about in every round, in another order each time, and ends
in another way. No request comes before the one before it is answered. Standard library only.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = "amber river mill friend market stone morning letter garden window bridge story sailor winter candle".split()


def get(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


def first_token(url, body):
    """Milliseconds until the first token of a streamed answer, which is read to its end."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    began, first = time.perf_counter(), None
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"content-type": "application/json"})
    answer = connection.getresponse()
    for line in answer:
        assert not line.startswith(b"event: error"), answer.read()
        if line.startswith(b"data: {") and first is None and json.loads(line[6:]).get("choices"):
            first = 1000 * (time.perf_counter() - began)
    assert answer.status == 200 and first is not None, (answer.status, url)
    connection.close()
    return first


class Processes:
    """Two servers, a worker beside each, and a frontend."""

    def __init__(self, router, arguments, cores):
        self.all, self.servers = [], []
        self.found = tempfile.TemporaryDirectory()
        local = {name: "127.0.0.1" for name in ("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST")}
        self.environment = {
            **os.environ, **local, "DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": self.found.name,
            "DYN_REQUEST_PLANE": "tcp", "DYN_LOG": "error",
        }
        for core in cores:
            serve = ["serve", "--port", "0", "--kv-events", "--served-model-name", "model",
                     "--pool-bytes", str(arguments.pool_bytes)]
            if arguments.model:
                serve += ["--model", arguments.model]
            # Threads are started on the cores that the process has.
            server = subprocess.Popen(["taskset", "-c", str(core), arguments.ladder, *serve], stderr=subprocess.PIPE, text=True)
            self.all.append(server)
            line = next(line for line in server.stderr if "serving on " in line)
            # A log that nobody reads fills its pipe, and the server waits.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            self.servers.append(re.search(r"http://\S+", line)[0])
            self.start("worker", "--server", self.servers[-1], "--model", arguments.files)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.start("frontend", "--port", str(port), "--router", router)
        self.url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 60
        while any(self.metric("vllm:generation_tokens_total", server) == 0 for server in self.servers):
            assert time.monotonic() < until, "the workers are not found"
            try:
                get(f"{self.url}/v1/completions", {"model": "model", "prompt": "Once", "max_tokens": 1})
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)

    def start(self, *arguments):
        self.all.append(subprocess.Popen([ADAPTER, *arguments], env=self.environment))

    def metric(self, name, server):
        lines = [line for line in get(f"{server}/metrics").splitlines() if line.startswith(name + "{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def sum(self, name):
        return sum(self.metric(name, server) for server in self.servers)

    def end(self):
        for process in reversed(self.all):
            process.send_signal(signal.SIGKILL)
            process.wait()


def rounds(name, processes, prompts, arguments, keep):
    """Every text in every round; what it came to goes to `keep`: at 1 that of the first round, at 2 that of all others."""
    dice = random.Random(1)
    for round in range(arguments.rounds):
        order = list(range(len(prompts)))
        dice.shuffle(order)
        for number in order:
            body = {"model": "model", "prompt": f"{prompts[number]} In round {round}", "max_tokens": 4, "temperature": 0}
            before = processes.sum("vllm:prefix_cache_hits_total"), processes.sum("vllm:prefix_cache_queries_total")
            took = first_token(processes.url, body)
            # A server counts when it has answered.
            time.sleep(0.1)
            found = processes.sum("vllm:prefix_cache_hits_total") - before[0]
            asked = processes.sum("vllm:prefix_cache_queries_total") - before[1]
            keep(f"TTFT, {name}", "ms", min(round, 1) + 1, took)
            keep(f"tokens known, {name}", "%", min(round, 1) + 1, 100 * found / asked)


def main():
    global ADAPTER
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladder", default=str(ROOT / "target/release/ladder"))
    parser.add_argument("--adapter", default=str(ROOT / "target/dynamo/release/ladder-dynamo"))
    parser.add_argument("--model", help="what the servers have; the embedded model if not given")
    parser.add_argument("--files", default=str(ROOT / "models/weights/target"), help="its tokenizer.json and config.json")
    parser.add_argument("--texts", type=int, default=16, help="beginnings")
    parser.add_argument("--words", type=int, default=280, help="words of each")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--pool-bytes", type=int, default=18 << 20, help="of each server: 12 of the embedded model's texts")
    parser.add_argument("--json", help="also write the samples there")
    arguments = parser.parse_args()
    ADAPTER = arguments.adapter
    dice = random.Random(7)
    prompts = [" ".join(dice.choice(WORDS) for _ in range(arguments.words)) for _ in range(arguments.texts)]
    samples = {}

    def keep(name, unit, at, value):
        samples.setdefault((name, unit), {}).setdefault(at, []).append(value)

    for name, router in [("by what servers know", "kv"), ("in turn", "round-robin")]:
        processes = Processes(router, arguments, sorted(os.sched_getaffinity(0))[:2])
        try:
            rounds(name, processes, prompts, arguments, keep)
            # What the frontend and the worker take themselves: a prompt that is known, through them and past them.
            if router == "kv":
                body = {"model": "model", "prompt": prompts[0], "max_tokens": 4, "temperature": 0}
                for server in processes.servers:
                    first_token(server, body)
                for _ in range(20):
                    keep("TTFT of a known text, through Dynamo", "ms", 1, first_token(processes.url, body))
                    keep("TTFT of a known text, from the server", "ms", 1, first_token(processes.servers[0], body))
        finally:
            processes.end()
    for (name, unit), points in samples.items():
        for at, values in points.items():
            print(f"{name:40} {at:3} {statistics.median(values):8.1f} {unit}, the median of {len(values)}")
    if arguments.json:
        cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
        machine = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "os": "linux", "date": str(datetime.date.today())}
        series = [
            {"name": name, "unit": unit, "points": [[float(at), values] for at, values in points.items()]}
            for (name, unit), points in samples.items()
        ]
        sizes = [f"--{name.replace('_', '-')} {getattr(arguments, name)}" for name in ("texts", "words", "rounds", "pool_bytes")]
        command = " ".join(["docs/measurements/behind_dynamo.py", *sizes])
        document = {"machine": machine, "command": command, "series": series}
        pathlib.Path(arguments.json).write_text(json.dumps(document, indent=2) + "\n")


main()
