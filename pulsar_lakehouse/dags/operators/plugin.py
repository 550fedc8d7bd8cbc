"""The Airflow plugin of this package. Airflow finds it by its entry point where the package is installed."""

from functools import cache
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from pulsar_lakehouse.dags.operators.notes import Notes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from pulsar_lakehouse.page.page import Page

PAGE = "/lakehouse"
"""The path of the page on Airflow's web server."""
REPORT = f"{PAGE}/quality"
"""The path of the last validation's report."""
PIPELINE = "pipeline"
"""The DAG whose permissions decide: who may see it sees numbers, and who may start it sees rows, and acts on them."""


async def page_of_project(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """An ASGI application that shows the page to users who are logged in to Airflow, and may see the pipeline."""
    # Every process of Airflow loads this module, but only the web server needs these.
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request as Received
    from starlette.responses import Response

    from pulsar_lakehouse.page.requests import MOST_BYTES, Answer, Request, User

    received = Received(scope, receive)
    user = await get_user(received, None, None)
    body = b""
    async for part in received.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, "too long")

    def answer() -> Answer:
        requires_access_dag("GET", None, PIPELINE)(received, user)
        try:
            requires_access_dag("POST", DagAccessEntity.RUN, PIPELINE)(received, user)
            may_act = True
        except HTTPException:
            may_act = False
        request = Request(
            path=scope["path"].removeprefix(scope["root_path"]).removeprefix("/"),
            method=scope["method"],
            query=scope["query_string"].decode(errors="replace"),
            body=body.decode(errors="replace"),
            headers=dict(received.headers),
            user=User(user.get_name(), may_act=may_act),
        )
        return _page().answer(request)

    given = await run_in_threadpool(answer)
    await Response(given.body, given.status, given.headers)(scope, receive, send)


@cache
def _page() -> "Page":
    from pulsar_lakehouse.page.page import Page
    from pulsar_lakehouse.settings import load_settings

    return Page(load_settings())


class LakehousePlugin(AirflowPlugin):
    name = "lakehouse"
    listeners = [Notes()]  # noqa: RUF012
    fastapi_apps = [{"name": "Lakehouse", "app": page_of_project, "url_prefix": PAGE}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Lakehouse", "href": f"{PAGE}/", "destination": "nav", "url_route": "lakehouse", "nav_top_level": True}
    ]
