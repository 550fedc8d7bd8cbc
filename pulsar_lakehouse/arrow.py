"""PyArrow's datasets without pandas, which takes a second to load, and which nothing of ours needs.

PyArrow loads pandas, if there is one, with its first value, and that is in this module of it. It does not look again
before something asks for a pandas object.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


@contextmanager
def _without_pandas() -> Iterator[None]:
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        yield
    finally:
        sys.meta_path.remove(hidden)


with _without_pandas():  # one that is loaded stays
    from pyarrow.dataset import (
        Expression,
        FileSystemDataset,
        Fragment,
        ParquetFileFormat,
        ParquetFragmentScanOptions,
        Scanner,
    )

__all__ = ["Expression", "FileSystemDataset", "Fragment", "ParquetFileFormat", "ParquetFragmentScanOptions", "Scanner"]
