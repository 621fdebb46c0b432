"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# On a build machine a failure must be one that the same commit shows again.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
