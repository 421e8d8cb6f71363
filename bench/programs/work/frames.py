"""pandas: a table of many rows is made, joined, grouped, sorted and written.

usage: frames.py ROWS
"""

import hashlib
import sys

import numpy as np
import pandas as pd


def main() -> None:
    """Prints a checksum of what it found."""
    rows, chance = int(sys.argv[1]), np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "key": chance.integers(0, 5000, rows),
            "value": chance.integers(0, 10**6, rows) / 4,
            "name": np.array(["red", "green", "blue"])[chance.integers(0, 3, rows)],
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(chance.integers(0, 1000, rows), "D"),
        }
    )
    other = pd.DataFrame({"key": np.arange(5000), "weight": chance.random(5000)})
    joined = frame.merge(other, on="key")
    joined["month"] = joined["day"].dt.month
    joined["title"] = joined["name"].str.upper() + "-" + joined["month"].astype(str)
    groups = joined.groupby(["title", "key"])["value"].agg(["sum", "max", "count"])
    table = joined.pivot_table("value", "key", "name", aggfunc="sum")
    ordered = joined.sort_values(["value", "key", "day"], kind="stable").head(1000)
    text = ordered.to_csv(index=False, columns=["key", "value", "title"])
    parts = (groups.sum().tolist(), table.fillna(0).sum().tolist(), text)
    print(hashlib.sha256(repr(parts).encode()).hexdigest())


if __name__ == "__main__":
    main()
