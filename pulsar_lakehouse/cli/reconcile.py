"""`lakehouse reconcile`: where each landed message is."""

from collections.abc import Iterable, Iterator

from pulsar_lakehouse.bronze.accepted_losses import accepted_losses
from pulsar_lakehouse.bronze.losses import LOSSES, refusal
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import end_if_nothing_is_new
from pulsar_lakehouse.errors import BrokerError, ConfigurationError, ReconciliationError
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.steps import open_lake_between_rounds, reconcile_all, require
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import keep_reconciliations
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake


def reconcile_command() -> None:
    """Check that each landed message is in exactly one place; if not, print the difference and exit with 1."""
    settings = load_settings()
    written = pipeline_of(settings).written
    end_if_nothing_is_new(settings, Step.RECONCILE)
    with open_lake_between_rounds(settings, written) as lake:
        require(lake, written, made_by="run")
        reconcile(lake)


def reconcile(lake: Lake) -> None:
    """Print and note where the landed messages are, and compare with the broker.

    Raises ReconciliationError if a message is in no table or in two, or was lost before it landed.
    """
    reconciliations = reconcile_all(lake)
    keep_reconciliations(lake.settings, reconciliations)
    report.reconciliation(reconciliations)
    report.note(reconciliations, lake.settings)
    refuse_broken(reconciliations, _lost(lake.settings))


def refuse_broken(reconciliations: Iterable[Reconciliation], others: Iterable[str] = ()) -> None:
    """Raises ReconciliationError if one does not hold, or if there are other problems."""
    broken = [each for each in reconciliations if not each.holds]
    problems = [f"{each.topic}: {'; '.join(each.problems) or each.difference}" for each in broken]
    if problems := [*problems, *others]:
        raise ReconciliationError(". ".join(problems))


def _lost(settings: Settings) -> Iterator[str]:
    """Print the accepted losses; yields the others, which only the broker knows."""
    try:
        for topic, (count, entries) in accepted_losses(settings).items():
            report.say(f"{topic}: {count:,} losses of at least {entries:,} entries were accepted: see {LOSSES.name}")
        endpoint = broker.endpoint(settings)
        for declared in pipeline_of(settings).topics:
            if loss := refusal(settings, declared, endpoint):
                yield loss
    except (BrokerError, ConfigurationError) as error:
        report.say(f"Not compared with the broker: {error}")
