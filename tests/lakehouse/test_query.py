from pathlib import Path

import pytest

from lakehouse.errors import LakehouseError
from lakehouse.query import query
from lakehouse.settings import load_settings


def test_where_nothing_has_run_yet_that_is_said(tmp_path: Path) -> None:
    error = f"Table with name users does not exist! {tmp_path}/warehouse has no tables yet: `lakehouse run` makes them$"
    with pytest.raises(LakehouseError, match=error):
        query(load_settings(home=tmp_path), "SELECT * FROM silver.users")
