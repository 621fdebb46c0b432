from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    found = Path(tempfile.mkdtemp())
    found.chmod(0o755)
    yield found
    found.chmod(0o700)
    shutil.rmtree(found)
