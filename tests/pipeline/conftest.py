import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_lakehouse.settings import DECLARATIONS


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, a test may load other projects than the shop of this package."""
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == DECLARATIONS]:
            patch.delitem(sys.modules, name)
        yield
