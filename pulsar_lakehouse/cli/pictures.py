"""Pictures that commands write to files."""

from pathlib import Path

from pulsar_lakehouse.errors import ConfigurationError


def write_picture(file: Path, drawn: str) -> None:
    try:
        file.write_text(drawn)
    except OSError as error:
        raise ConfigurationError(f"--picture {file}: can't be written: {error.strerror}") from None
