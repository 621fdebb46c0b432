"""Kill the proxy with SIGKILL 200 times under load: python tests/benchmarks/kill_nine.py [KILLS].

Prints what was sent, and every original that a request mentioned and that can't be restored (there must be none).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from killing import kill_often


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_often(Path(folder), kills=kills, seed=9, say=lambda line: print(line, flush=True))
    print(
        f"\n{found.kills} kills in {time.monotonic() - began:.0f} s: {found.sent} requests reached "
        f"the provider, {found.answered} were answered, {found.compactions} compactions, {found.replays} replays; "
        f"{len(found.mentioned)} originals mentioned, {len(found.problems)} problems"
    )
    for problem in found.problems[:20]:
        print(problem)
    return 1 if found.problems or not found.mentioned else 0


if __name__ == "__main__":
    sys.exit(main())
