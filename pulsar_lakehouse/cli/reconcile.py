"""`lakehouse reconcile`: where each landed message is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from pulsar_lakehouse.bronze.accepted_losses import accepted_losses
from pulsar_lakehouse.bronze.losses import LOSSES, refusal
from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.errors import BrokerError, ConfigurationError, ReconciliationError
from pulsar_lakehouse.jobs.steps import open_lake_between_rounds, reconcile_all, require
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import keep_reconciliations
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake


def reconcile_command(as_json: AsJson = False) -> None:
    """Check that each landed message is in exactly one place; if not, print the difference and exit with 1."""
    settings = load_settings()
    written = pipeline_of(settings).written
    with open_lake_between_rounds(settings, written) as lake:
        require(lake, written, made_by="run")
        reconcile(lake, as_json=as_json)


def reconcile(lake: Lake, *, as_json: bool = False) -> None:
    """Print and note where the landed messages are, and compare with the broker.

    Raises ReconciliationError if a message is in no table or in two, or was lost before it landed.
    """
    reconciliations = reconcile_all(lake)
    keep_reconciliations(lake.settings, reconciliations)
    accepted = accepted_losses(lake.settings)
    lost, unasked = _lost(lake.settings)
    if as_json:
        shapes.show(_shape(reconciliations, accepted, lost, unasked))
    else:
        report.reconciliation(reconciliations)
        for topic, (count, entries) in accepted.items():
            report.say(f"{topic}: {count:,} losses of at least {entries:,} entries were accepted: see {LOSSES.name}")
        if unasked:
            report.say(f"Not compared with the broker: {unasked}")
    report.note(reconciliations, lake.settings)
    refuse_broken(reconciliations, lost)


def _shape(
    done: Iterable[Reconciliation], accepted: Mapping[str, tuple[int, int]], lost: Sequence[str], unasked: str
) -> shapes.Reconciliation:
    return shapes.Reconciliation(
        topics=[shapes.Equation(**asdict(each), difference=each.difference, holds=each.holds) for each in done],
        accepted_losses=[
            shapes.AcceptedLosses(topic=topic, losses=losses, entries=entries)
            for topic, (losses, entries) in accepted.items()
        ],
        lost=lost,
        not_compared=unasked,
    )


def refuse_broken(reconciliations: Iterable[Reconciliation], others: Iterable[str] = ()) -> None:
    """Raises ReconciliationError if one does not hold, or if there are other problems."""
    broken = [each for each in reconciliations if not each.holds]
    problems = [f"{each.topic}: {'; '.join(each.problems) or each.difference}" for each in broken]
    if problems := [*problems, *others]:
        raise ReconciliationError(". ".join(problems))


def _lost(settings: Settings) -> tuple[list[str], str]:
    """The losses that nobody has accepted, which only the broker knows, and why it can't be asked, if so."""
    lost: list[str] = []
    try:
        endpoint = broker.endpoint(settings)
        for declared in pipeline_of(settings).topics:
            if loss := refusal(settings, declared, endpoint):
                lost.append(loss)
    except (BrokerError, ConfigurationError) as error:
        return lost, str(error)
    return lost, ""
