"""A process that has imported the proxy, and forks one that serves for every config file named on standard input.

Starting Python and loading the tokenizer takes most of a second; a test that kills the proxy 200 times saves that.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    from ctxproxy import catalogue, proxy, stores  # noqa: F401
    from ctxproxy.config import load
    from ctxproxy.tokens import counter

    counter("o200k").count("warm")
    catalogue.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(proxy.serve(load(line.strip())))
        print(f"pid {pid}", flush=True)


if __name__ == "__main__":
    main()
