"""A headless Chromium for tests. Of the machine's libraries it needs only the C library."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import brotli
from playwright.sync_api import Page, sync_playwright

from pulsar_lakehouse.downloads.artifacts import downloaded

FONTS = "<fontconfig><dir>{0}/fonts</dir><cachedir>{0}/fonts-cache</cachedir></fontconfig>"


@contextmanager
def opened_page(cache: Path, scratch: Path) -> Iterator[Page]:
    """An empty page in a browser that is unpacked in `scratch`, with its own libraries and fonts."""
    (package,) = downloaded("chromium", cache)
    for packed in package.glob("bin/*.br"):
        _unpack(packed, scratch)
    fonts = scratch / "fonts.conf"
    fonts.write_text(FONTS.format(scratch))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=scratch / "chromium",
            args=["--no-proxy-server"],
            env={"HOME": str(scratch), "LD_LIBRARY_PATH": str(scratch / "lib"), "FONTCONFIG_FILE": str(fonts)},
        )
        yield browser.new_page(viewport={"width": 1440, "height": 900})
        browser.close()


def _unpack(packed: Path, folder: Path) -> None:
    content = brotli.decompress(packed.read_bytes())
    if packed.suffixes == [".tar", ".br"]:
        with tarfile.open(fileobj=BytesIO(content)) as tar:
            tar.extractall(folder, filter="data")
    else:
        program = folder / packed.stem
        program.write_bytes(content)
        program.chmod(0o755)
