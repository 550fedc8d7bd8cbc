"""A folder of tables has one home."""

import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.leases.leases import lease_between_rounds, write_lease
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home


def home(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"home": folder, "warehouse": str(folder.parent / "tables")})


@pytest.mark.parametrize("lease", [write_lease, lease_between_rounds])
def test_a_second_home_is_refused(settings: Settings, tmp_path: Path, lease: Callable[..., Any]) -> None:
    with write_lease(home(settings, tmp_path / "first"), ["silver.users"]):
        pass
    tables, first = tmp_path / "tables", f"{socket.gethostname()}:{tmp_path}/first"
    line = f"{tables}: only the home {first} may write here: use it, or remove {tables}/.home if it is gone for good"
    with (
        pytest.raises(ConfigurationError, match=f"^{re.escape(line)}$"),
        lease(home(settings, tmp_path / "second"), ["silver.items"]),
    ):
        pass


def test_a_home_that_is_moved_goes_on(settings: Settings, tmp_path: Path) -> None:
    refuse_other_home(home(settings, tmp_path / "here"))
    shutil.move(tmp_path / "here", tmp_path / "there")
    refuse_other_home(home(settings, tmp_path / "there"))


def test_another_home_can_follow_one_that_is_gone(settings: Settings, tmp_path: Path) -> None:
    refuse_other_home(home(settings, tmp_path / "first"))
    (tmp_path / "tables" / ".home").unlink()
    refuse_other_home(home(settings, tmp_path / "second"))


def test_tables_in_a_home_need_no_guard(settings: Settings, tmp_path: Path) -> None:
    with write_lease(own_home(settings, tmp_path), ["silver.users"]):
        assert not (tmp_path / "warehouse").exists()


def test_what_writes_no_table_claims_no_folder(settings: Settings, tmp_path: Path) -> None:
    with write_lease(home(settings, tmp_path / "first"), []):
        assert not (tmp_path / "tables").exists()


def test_a_file_that_a_power_cut_left_empty_is_as_if_it_was_not_there(settings: Settings, tmp_path: Path) -> None:
    refuse_other_home(home(settings, tmp_path / "first"))
    (tmp_path / "tables" / ".home").write_text("")
    refuse_other_home(home(settings, tmp_path / "second"))
    with pytest.raises(ConfigurationError, match=r"only the home .*/second may write here"):
        refuse_other_home(home(settings, tmp_path / "first"))
