"""The report on a validation: the Data Docs of Great Expectations, changed to work without internet.

Their pages load scripts and styles from public servers, and show nothing without them. Here these are replaced by
files beside the pages (`pulsar_lakehouse/downloads/artifacts.xml` lists their sources), or removed.
"""

import re
import shutil
from pathlib import Path
from zipfile import ZipFile

import great_expectations as gx
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)

from pulsar_lakehouse.downloads.artifacts import downloaded
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings

SITE = "quality"
FILES = (
    "jquery.min.js",
    "bootstrap.bundle.min.js",
    "bootstrap.min.css",
    "bootstrap-table.min.js",
    "bootstrap-table.min.css",
    "bootstrap-table-filter-control.min.js",
    "bootstrap-table-filter-control.css",
    "bootstrap-datepicker.min.js",
    "bootstrap-datepicker.min.css",
)
INSTEAD = {
    "jquery-3.7.1.min.js": "jquery.min.js",
    "bootstrap.min.js": "bootstrap.bundle.min.js",
    "bootstrap-table-filter-control.min.css": "bootstrap-table-filter-control.css",
}
"""File names in the pages that differ from the names of our files. The bundle includes popper.js."""

# Replaces the icons that the pages use from an icon font.
ICONS = """<style>
.fas { font-style: normal; font-weight: bold }
.fa-check-circle::before { content: "\\2713" }
.fa-times::before { content: "\\2717" }
.fa-exclamation-triangle::before { content: "!" }
.navbar-brand a { background: none }
.navbar-brand a::before { content: "Data quality" }
</style>"""

REMOTE = re.compile(r'<(script|link)\b[^>]*?(src|href)="https?://[^"]*/([^"/]+)"[^>]*>(?:\s*</script>)?')
LOGO = re.compile(r'<img[^>]*class="NO-CACHE"[^>]*>')
BACKGROUND = re.compile(r"background: url\('https?://[^']*'\)[^;]*;")
ADVERTISEMENT = re.compile(r"<footer>.*?</footer>", re.DOTALL)


def new_context(settings: Settings) -> EphemeralDataContext:
    """A context that keeps everything in memory except the pages."""
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "site_section_builders": {"profiling": "None"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(_draft(settings))},
    }
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        data_docs_sites={SITE: site},
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    assert isinstance(context, EphemeralDataContext)
    # Nobody reads the configuration from there, and it would be written as YAML three times for each table.
    context._save_project_config = lambda: None  # type: ignore[method-assign]
    return context


def write_pages(context: EphemeralDataContext, settings: Settings) -> None:
    """Write the pages on what the context has validated, in place of the last ones.

    Raises LakehouseError if the scripts and styles can't be downloaded. Then the last pages are removed, too.
    """
    draft, folder = _draft(settings), settings.report.parent
    try:
        jars = downloaded("pages", settings.cache)
    except LakehouseError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(draft, ignore_errors=True)
    context.build_data_docs(site_names=[SITE])
    for page in draft.rglob("*.html"):
        up = "../" * (len(page.relative_to(draft).parts) - 1)
        page.write_text(without_internet(page.read_text(), static=f"{up}static"))
    shutil.rmtree(draft / "static")
    (draft / "static").mkdir()
    for jar in jars:
        _unpack(jar, draft / "static")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def without_internet(page: str, *, static: str) -> str:
    """The page without anything that is loaded from the internet. `static` is the relative path to the local files."""

    def local(tag: re.Match[str]) -> str:
        kind, name = tag[1], INSTEAD.get(tag[3], tag[3])
        if name not in FILES:
            return ""
        file = f"{static}/{name}"
        return f'<script src="{file}"></script>' if kind == "script" else f'<link rel="stylesheet" href="{file}">'

    page = REMOTE.sub(local, page)
    for unwanted in (LOGO, BACKGROUND, ADVERTISEMENT):
        page = unwanted.sub("", page)
    return page.replace("</head>", f"{ICONS}</head>")


def _unpack(jar: Path, folder: Path) -> None:
    with ZipFile(jar) as content:
        for member in content.namelist():
            name = member.rpartition("/")[2]
            if name in FILES and "/themes/" not in member:
                (folder / name).write_bytes(content.read(member))


def _draft(settings: Settings) -> Path:
    return settings.home / "quality.part"
