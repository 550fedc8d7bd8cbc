"""The Airflow plugin of this package. Airflow finds it by its entry point where the package is installed."""

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from pulsar_lakehouse.dags.operators.notes import Notes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

REPORT = "/lakehouse/quality"
"""The path of the last validation's report on Airflow's web server."""


async def report_pages(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """An ASGI application that shows the report's pages to users who are logged in to Airflow."""
    # Every process of Airflow loads this module, but only the web server needs these.
    from airflow.api_fastapi.core_api.security import get_user
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.staticfiles import StaticFiles

    from pulsar_lakehouse.settings import load_settings

    await get_user(Request(scope), None, None)
    folder = load_settings().report.parent
    if not folder.is_dir():
        raise HTTPException(404, f"there is no report in {folder} yet: `lakehouse validate` writes it")
    await StaticFiles(directory=folder, html=True)(scope, receive, send)


class LakehousePlugin(AirflowPlugin):
    name = "lakehouse"
    listeners = [Notes()]  # noqa: RUF012
    fastapi_apps = [{"name": "quality report", "app": report_pages, "url_prefix": REPORT}]  # noqa: RUF012
