"""Draw the plots of docs/benchmarks.md from its tables, and what each domain makes of its topics.

.venv/bin/python docs/plots.py
"""

import re
from pathlib import Path

from pulsar_lakehouse.domains import DOMAINS
from pulsar_lakehouse.pipeline.graph import picture
from pulsar_lakehouse.pipeline.loading import load

PAGE = Path(__file__).with_name("benchmarks.md")
IMAGES = Path(__file__).with_name("images")
WIDTH, BAR, GAP, LEFT, RIGHT = 720, 22, 12, 230, 130
STYLE = (
    'text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:13px;fill:#1f2937}'
    "rect.bar{fill:#6366f1}rect.back{fill:#fff}"
)


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = PAGE.read_text().partition(f"# {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def bars(title: str, values: list[tuple[str, float]], unit: str) -> str:
    """A bar for each value, as SVG."""
    most = max(value for _, value in values)
    height = GAP + len(values) * (BAR + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f'<title>{title}</title><style>{STYLE}</style><rect class="back" width="{WIDTH}" height="{height}"/>',
    ]
    for number, (label, value) in enumerate(values):
        top, length = GAP + number * (BAR + GAP), value / most * (WIDTH - LEFT - RIGHT)
        lines += [
            f'<text x="{LEFT - 10}" y="{top + 16}" text-anchor="end">{label}</text>',
            f'<rect class="bar" x="{LEFT}" y="{top}" width="{length:.0f}" height="{BAR}" rx="3"/>',
            f'<text x="{LEFT + length + 8:.0f}" y="{top + 16}">{_shown(value)} {unit}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:g}"


def middle(cell: str) -> float:
    """The number of a cell, or the middle of its two."""
    numbers = [float(number.replace(",", "")) for number in re.findall(r"[\d,.]+", cell)]
    return sum(numbers) / len(numbers)


def plots() -> dict[str, str]:
    """The SVG text of each plot, by its file's name."""
    pipeline = [(row[0], middle(row[1])) for row in rows_below("The pipeline")]
    growth = [(f"{row[0]}, {row[1]} keys", middle(row[2])) for row in rows_below("Growth")]
    domains = {f"{name}.svg": picture(load(folder / "declarations").pipeline) for name, folder in DOMAINS.items()}
    return domains | {
        "benchmark-pipeline.svg": bars("Orders a second", pipeline, "orders/s"),
        "benchmark-growth.svg": bars("Seconds to merge 10,000 messages", growth, "s"),
    }


if __name__ == "__main__":
    for name, text in plots().items():
        IMAGES.joinpath(name).write_text(text)
