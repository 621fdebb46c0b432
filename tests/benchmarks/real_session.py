"""Long sessions with the real model on a window of 2,048 tokens, with summaries on: python tests/benchmarks/real_session.py [TURNS] [MODE ...].

First with the model's own summaries, then with those of an able model, then with each way in which a summary call
fails. Prints what was seen; a session survives if every turn was answered and every request held one note at most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast, get_args

sys.path.insert(0, str(Path(__file__).parent.parent))

from faulty import FAULTS, Faulty, Mode
from sessions import talk

from ctxproxy.demo.server import model_server


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    modes = [cast("Mode", m) for m in sys.argv[2:] if m in get_args(Mode)] or ["real", "good", *FAULTS]
    bad = 0
    with model_server(n_ctx=2048) as model:
        for mode in modes:
            with Faulty(model.url, mode=mode) as server:
                found = talk(model, server, turns=turns, wait=3.0 if mode == "timeout" else 15.0)
            print(f"{mode}: {found}", flush=True)
            bad += bool(found.problems or found.needless)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
