"""`ladder serve` for a while: the embedded model, on a port that is free."""

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator

# What is under way has half a minute to finish.
END_SECONDS = 40


@contextlib.contextmanager
def served(ladder: str, *arguments: str) -> Iterator[str]:
    """Gives the address, without a slash at its end. The server has to end when it is told to."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        # Not a pipe: nobody would read it, and a full one holds up the server.
        with log.open("w") as told:
            settings = os.environ | {"RUST_LOG": "info"}
            server = subprocess.Popen([ladder, "serve", "--port", "0", "--device", "cpu", *arguments], stderr=told, env=settings)
        try:
            yield address(server, log)
            server.terminate()
            ended = server.wait(timeout=END_SECONDS)
            assert ended == 0, f"the server ended with {ended}: {log.read_text()[-2000:]}"
        finally:
            server.kill()


def address(server: subprocess.Popen, log: pathlib.Path) -> str:
    while server.poll() is None:
        if found := re.search(r"serving on (http://[0-9.:]+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server ended before it served: {log.read_text()}")
