"""Settings of all tests."""

from __future__ import annotations

import atexit
import os
import tempfile

from hypothesis import settings

# No test may write into the home of whoever runs it, nor read what a proxy of theirs has kept there.
_state = tempfile.TemporaryDirectory(prefix="ctxproxy-tests-")
atexit.register(_state.cleanup)
os.environ["XDG_STATE_HOME"] = _state.name

# On a build machine a failure must be one that the same commit shows again.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Nothing of the tests, nor of a command that they start, may write to the user's home.
_state = tempfile.TemporaryDirectory(prefix="ctxproxy-tests-")
os.environ["XDG_STATE_HOME"] = _state.name
