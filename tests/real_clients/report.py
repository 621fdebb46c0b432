"""Runs every client that is installed and prints the table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from real_clients.clients import CLIENTS
from real_clients.session import HEADER, run_session


def main(names: list[str]) -> None:
    print(HEADER)
    for client in CLIENTS:
        if names and not any(name in client.name for name in names):
            continue
        if client.path is None:
            print(f"{client.name:26} not installed ({client.install})")
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = run_session(client, Path(folder) / "session")
        print(result.line(), flush=True)
        if result.errors or result.invalid:
            print(f"  exit {result.code}, {result.steps} steps, refused {result.refused}")
            print("  " + result.output[-1500:].replace("\n", "\n  "))
            print("  " + result.said[-2500:].replace("\n", "\n  "))


if __name__ == "__main__":
    main(sys.argv[1:])
