"""Settings of all tests."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

# On a build machine a failure must be one that the same commit shows again.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Nothing of the tests, nor of a command that they start, may write to the user's home.
_state = tempfile.TemporaryDirectory(prefix="ctxproxy-tests-")
os.environ["XDG_STATE_HOME"] = _state.name
