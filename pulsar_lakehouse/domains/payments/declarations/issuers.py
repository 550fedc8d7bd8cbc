"""How risky the bank is that has issued a card: somebody outside knows, and is asked once for each bank.

A real function would ask by HTTP. This one knows the answers, and is as slow and as unreliable.
"""

import asyncio

from pulsar_lakehouse import Entity, service

RISKS = {"340012": 5, "370034": 20, "400056": 10, "411111": 15, "455678": 70, "510510": 30, "520082": 5, "222300": 90}
"""From 0 to 100, by the first six digits of a card."""
FAILED: set[str] = set()


@service(returns="risk INT", timeout="2 seconds", rate=100)
async def issuer_risk(issuer: str) -> dict[str, int] | None:
    await asyncio.sleep(0.01)
    if issuer not in RISKS:
        return None
    if RISKS[issuer] > 50 and issuer not in FAILED:
        FAILED.add(issuer)
        raise ConnectionError("the first call for a risky bank fails, and is repeated")
    return {"risk": RISKS[issuer]}


ISSUERS = Entity(source=issuer_risk, key="issuer", columns="issuer, risk")
