import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page as Tab

from pulsar_lakehouse.settings import Settings, load_settings
from tests.browser import opened_page
from tests.page.lake import fill


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home without tables and without a broker."""
    monkeypatch.chdir(tmp_path)
    return load_settings(home=tmp_path / "home")


@pytest.fixture
def hostile(project: Settings) -> Settings:
    fill(project)
    return project


@pytest.fixture
def page(project: Settings, tmp_path: Path) -> Iterator[Tab]:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the headless Chromium of npm is for Linux on x86-64")
    with opened_page(project.cache, tmp_path) as page:
        yield page
