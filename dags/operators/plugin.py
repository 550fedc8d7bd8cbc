"""What this package adds to each Airflow that has it installed, and finds it by its entry point."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from dags.operators.notes import Notes

REPORT = "/lakehouse/quality"
"""Where Airflow's web server has the report on the last validation."""


async def report_pages(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The pages of the report, an ASGI application, for those who are logged in to Airflow."""
    # All of Airflow loads this module, and only its web server needs these.
    from airflow.api_fastapi.core_api.security import get_user
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.staticfiles import StaticFiles

    from lakehouse.settings import load_settings

    await get_user(Request(scope), None, None)
    folder = load_settings().report.parent
    if not folder.is_dir():
        raise HTTPException(404, f"there is no report in {folder}: it comes with a validation")
    await StaticFiles(directory=folder, html=True)(scope, receive, send)


class LakehousePlugin(AirflowPlugin):
    name = "lakehouse"
    listeners = [Notes()]  # noqa: RUF012
    fastapi_apps = [{"name": "quality report", "app": report_pages, "url_prefix": REPORT}]  # noqa: RUF012
