"""Who may read what: the tables that exist for a reader, and the columns that are masked. All that shows rows asks it.

A grant is a layer such as `gold`, a table such as `silver.users`, `*` for all tables, or `pii` for personal data.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.near import did_you_mean
from pulsar_lakehouse.settings import Settings

ALL, PII = "*", "pii"
EACH = "*"
"""In place of a column: each of a table."""
MASK = "***"
"""What stands for a text that is masked. Other values are NULL then, and NULL stays NULL."""

Personal = Mapping[str, tuple[str, ...]]
"""By table: the columns with personal data, and fields of structs, such as `user.email`; `*` are all columns."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    grants: frozenset[str]
    personal: Personal = field(default_factory=dict, hash=False)
    declared: frozenset[str] = frozenset()
    """The tables of which it is known what is personal."""

    def may_read(self, table: str) -> bool:
        return not self.grants.isdisjoint((ALL, table, table.partition(".")[0]))

    def masked(self, table: str) -> tuple[str, ...]:
        """The columns of a table, and the fields of structs, that are masked for the reader.

        Where some data is personal, all columns are of a table that nobody declares: it may be a copy.
        """
        if PII in self.grants or not self.personal:
            return ()
        return self.personal.get(table, () if table in self.declared else (EACH,))

    @property
    def sees_personal_data(self) -> bool:
        return PII in self.grants and bool(self.personal)

    def hides(self, table: str, column: str) -> bool:
        """Whether a column, or a field such as `user.email`, is masked, or a part of it is."""
        return is_within(self.masked(table), column)


def is_within(paths: Iterable[str], column: str) -> bool:
    """Whether one of the paths is a column, or a part of it, or has it as a part; whatever their case."""
    whole, parts = f"{column}.".casefold(), [f"{path}.".casefold() for path in paths]
    return any(part == f"{EACH}." or part.startswith(whole) or whole.startswith(part) for part in parts)


def below(paths: Iterable[str], name: str) -> list[str]:
    """What follows a name in the paths that begin with it, whatever its case: empty texts for those that end there."""
    parts = (path.partition(".") for path in paths)
    return [rest for first, _, rest in parts if first == EACH or first.casefold() == name.casefold()]


ITSELF = Reader(grants=frozenset((ALL, PII)))
"""The pipeline, which reads its own tables as they are."""


def operator(settings: Settings, personal: Personal, declared: Collection[str]) -> Reader:
    """Who runs commands, or sees the page: all tables, and personal data if `unmasked` is set."""
    grants = (ALL, PII) if settings.unmasked else (ALL,)
    return Reader(grants=frozenset(grants), personal=personal, declared=frozenset(declared))


def sql_users(
    settings: Settings,
    personal: Personal,
    declared: Collection[str],
    *,
    layers: Sequence[str],
    stored: Collection[str],
) -> dict[str, Reader]:
    """The users of the SQL endpoint. Without any grants, all of them may read all tables, but no personal data.

    Raises ConfigurationError for a grant of what there is not, and if some users have grants and others have no entry.
    """
    users, grants, tables = settings.serve.users, settings.serve.grants, sorted({*declared, *stored})
    for name, given in grants.items():
        if name not in users:
            raise ConfigurationError(f"serve.grants {name}: no such user in serve.users{did_you_mean(name, users)}")
        for grant in given:
            if grant not in (ALL, PII, *layers, *tables):
                what = "table" if grant.partition(".")[0] in layers else "layer"
                known = tables if what == "table" else layers
                raise ConfigurationError(
                    f"serve.grants {name}: {grant}: no such {what}{did_you_mean(grant, known)}"
                    f"{'' if what == 'table' else f'; there are {_listed(layers)}'}"
                )
    if grants and (without := [name for name in users if name not in grants]):
        raise ConfigurationError(
            f'serve.grants: {without[0]} has none, as others do: give this user [] for no table, or ["*"] for all'
        )
    of_all = Reader(grants=frozenset((ALL,)), personal=personal, declared=frozenset(declared))
    return {name: replace(of_all, grants=frozenset(grants[name])) if grants else of_all for name in users}


def _listed(layers: Iterable[str]) -> str:
    return ", ".join((*layers, ALL, PII))
