"""The page on Airflow's web server: who may see what, by Airflow's permissions."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api import security
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from pulsar_lakehouse.dags.operators import plugin
from pulsar_lakehouse.page.page import Page
from pulsar_lakehouse.page.requests import MOST_BYTES
from pulsar_lakehouse.settings import load_settings

Right = tuple[str, DagAccessEntity | None, str]
SEES: Right = ("GET", None, "pipeline")
STARTS: Right = ("POST", DagAccessEntity.RUN, "pipeline")
OURS = {"Origin": "http://testserver"}


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """A web server at which somebody with these rights is logged in, or nobody is."""
    page = Page(load_settings(home=tmp_path))
    monkeypatch.setattr(plugin, "_page", lambda: page)

    def server(*rights: Right, user: str = "vera") -> TestClient:
        async def get_user(request: Request, *_: object) -> object:
            if not user:
                raise HTTPException(401, "Not authenticated")
            return SimpleNamespace(get_name=lambda: user)

        def requires_access_dag(*right: object) -> Callable[[Request, object], None]:
            def check(request: Request, user: object) -> None:
                if right not in rights:
                    raise HTTPException(403, "Forbidden")

            return check

        monkeypatch.setattr(security, "get_user", get_user)
        monkeypatch.setattr(security, "requires_access_dag", requires_access_dag)
        return TestClient(Starlette(routes=[Mount("/lakehouse", plugin.page_of_project)]))

    return server


@pytest.mark.parametrize(
    ("rights", "statuses"),
    [
        ((), [403, 403, 403]),
        ((STARTS,), [403, 403, 403]),
        ((SEES,), [200, 403, 403]),
        ((SEES, STARTS), [200, 200, 200]),
    ],
)
def test_permissions_of_the_pipeline_decide(
    airflow: Callable[..., TestClient], rights: tuple[Right, ...], statuses: list[int]
) -> None:
    client, query = airflow(*rights), {"statement": "SELECT 1"}
    looks = [client.get("/lakehouse/"), client.get("/lakehouse/quarantine")]
    assert [each.status_code for each in (*looks, client.post("/lakehouse/sql", data=query, headers=OURS))] == statuses


def test_who_is_not_logged_in_sees_nothing(airflow: Callable[..., TestClient]) -> None:
    client = airflow(SEES, STARTS, user="")
    assert [client.get(f"/lakehouse/{path}").status_code for path in ("", "style.css", "quality/")] == [401] * 3


def test_the_page_knows_the_user_and_the_form(airflow: Callable[..., TestClient]) -> None:
    client = airflow(SEES, STARTS, user="<vera>")
    assert ">&lt;vera&gt;</span>" in client.get("/lakehouse/").text
    shown = client.post("/lakehouse/sql", data={"statement": "SELECT 40 + 2"}, headers=OURS)
    assert '<td class="number">42</td>' in shown.text
    assert client.get("/lakehouse/trace?topic=users&key=a%26b").text.count("a&amp;b") == 2


def test_forms_of_other_sites_and_long_ones_are_refused(airflow: Callable[..., TestClient]) -> None:
    client, query = airflow(SEES, STARTS), {"statement": "SELECT 1"}
    for headers in ({"Origin": "http://elsewhere"}, {"Sec-Fetch-Site": "cross-site", **OURS}, {}):
        assert client.post("/lakehouse/sql", data=query, headers=headers).status_code == 403
    assert client.post("/lakehouse/sql", data={"statement": "x" * MOST_BYTES}, headers=OURS).status_code == 413


def test_the_entry_in_the_navigation_leads_to_the_page() -> None:
    [view], [app] = plugin.LakehousePlugin.external_views, plugin.LakehousePlugin.fastapi_apps
    assert (view["name"], view["href"], app["url_prefix"]) == ("Lakehouse", "/lakehouse/", "/lakehouse")
