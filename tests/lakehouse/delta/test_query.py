import re
from pathlib import Path

import pytest

from lakehouse.delta.query import query
from lakehouse.errors import LakehouseError
from lakehouse.settings import load_settings


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (
            "SELECT * FROM silver.users",
            "Table with name users does not exist! {warehouse} has no tables yet: "
            "`lakehouse run` creates the declared ones, `lakehouse refresh` those declared in SQL",
        ),
        ("SELECT nothing(1)", "Scalar Function with name nothing does not exist!"),
    ],
)
def test_where_nothing_has_run_yet_that_is_said_of_tables(tmp_path: Path, statement: str, error: str) -> None:
    told = re.escape(error.format(warehouse=tmp_path / "warehouse"))
    with pytest.raises(LakehouseError, match=f"^Catalog Error: {told}$"):
        query(load_settings(home=tmp_path), statement)
