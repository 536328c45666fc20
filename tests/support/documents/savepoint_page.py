"""The savepoint that docs/savepoint-format.md speaks of, and the examples there, word for word."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.backends import (
    ListStateDescriptor,
    SnapshotForm,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.storage import Invalid, load_storage

PAGE = (Path(__file__).parents[3] / "docs" / "savepoint-format.md").read_text()
TOTALS = {"ann": 3, "bob": -5, "ü": 0}
AMOUNTS = {"ann": [1.5, 2.5, 0.25], "bob": [9.0]}


@dataclass
class Order:
    """An element of a list."""

    amount: float
    note: str | None = None


def make_savepoint(folder: Path) -> None:
    """Have a folder `savepoint` in this one, with the files of a canonical snapshot."""
    job = load_storage(str(folder / "job")).job("job")
    for key_groups in key_groups_of_slots(2, 128):
        backend = load_backend("hashmap")
        with backend.open(uid="spend", key_groups=key_groups, max_parallelism=128) as state:
            total = state.get_state(ValueStateDescriptor("total", int))
            orders = state.get_state(ListStateDescriptor("orders", Order))
            for key, value in TOTALS.items():
                with suppress(Invalid):  # another slot's
                    state.set_current_key(key)
                    total.update(value)
                    orders.update([Order(amount) for amount in AMOUNTS.get(key, [])])
            state.snapshot(1, job, form=SnapshotForm.CANONICAL).result(60)
    for written in (folder / "job" / "job" / "chk-00000000000000000001").iterdir():
        shutil.copytree(written, folder / "savepoint", dirs_exist_ok=True)


def run_example(tool: str, **names: Any) -> dict[str, Any]:
    """What the page's example for a tool has left."""
    (code,) = re.findall(rf"With {tool}[^\n]*\n```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, names)
    return names
