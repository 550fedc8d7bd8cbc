"""Functions that the SQL of the declarations calls."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_lakehouse import function

NETWORKS = {"amex": "^3[47]", "visa": "^4", "mastercard": "^(5[1-5]|2[2-7])"}
LONGEST = 19


@function("card STRING", returns="STRING", timeout="5 seconds")
def network(card: pa.StringArray) -> pa.Array:
    """The network of a card, by the first digits of its number. The last digit must be the check digit (Luhn)."""
    if not pc.all(pc.match_substring_regex(card, f"^[0-9]{{13,{LONGEST}}}$")).as_py() or not has_check_digits(card):
        raise ValueError("no card number")
    found = pa.nulls(len(card), pa.string())
    for name, begin in NETWORKS.items():
        found = pc.if_else(pc.match_substring_regex(card, begin), name, found)
    return pc.if_else(pc.is_valid(card), pc.fill_null(found, "other"), found)


def has_check_digits(cards: pa.StringArray) -> bool:
    padded = pc.utf8_lpad(pc.drop_null(cards), LONGEST, "0").to_pylist()
    digits = np.frombuffer("".join(padded).encode(), np.uint8).reshape(-1, LONGEST) - ord("0")
    digits[:, -2::-2] *= 2
    return not np.any((digits // 10 + digits % 10).sum(axis=1) % 10)
