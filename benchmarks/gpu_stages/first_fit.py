"""The first fit of a new user, with every default: cells of benchmarks/first_fit.py, which says what they are.

minilm-l6 on some rows of each data set that is there, five draws; the number of rows is that of a label, or for
numbers, tags and questions in all. The lines have the columns of benchmarks/results/first_fit.csv.
"""

from __future__ import annotations

import functools
from typing import Any

from gpu_stages import texts
from gpu_stages.setting import Absent, Cell, Setting

# Data sets, and the folder of KBERT_DATA that each needs; "messages" are in the repository.
DATA = {
    "sst2": "sst2", "cola": "cola", "mrpc": "mrpc", "rte": "rte", "stsb": "stsb", "agnews": "agnews",
    "messages": "", "conll": "conll2003", "imdb": "imdb", "imdb15": "imdb", "squad": "squad",
}  # fmt: skip
ROWS = (8, 16, 64, 250, 1000, 4000)
DRAWS = 5


def cells(setting: Setting) -> list[Cell]:
    """Draw by draw, so that the means of all numbers of rows grow better together."""
    return [
        Cell(f"{data}, {rows} rows, draw {draw}", {"data": data, "rows": rows, "draw": draw}, seconds)
        for draw in range(setting.pick(DRAWS, 1))
        for rows, seconds in zip(setting.pick(ROWS, (8,)), (15, 15, 15, 15, 20, 40), strict=False)
        for data in setting.pick(tuple(DATA), ("sst2",))
    ]


def measure(setting: Setting, seconds: float, data: str, rows: int, draw: int) -> dict[str, Any]:
    """One cell."""
    needed = DATA[data]
    if needed and (setting.data is None or not (setting.data / needed).is_dir()):
        raise Absent(f"there is no {needed} in the folder of KBERT_DATA")
    if setting.weights is None and not setting.miniature:
        raise Absent("there are no weights of minilm-l6: give --weights")
    import first_fit

    method = f"kbert:weights={texts.weights_folder('minilm-l6', setting)}"
    found = first_fit.measure(data, rows, draw, method, _loaded(data))
    assert found is not None
    return {"data": data, "rows": rows, "draw": draw, "method": "kbert", **found}


@functools.lru_cache(4)
def _loaded(data: str) -> Any:
    import first_fit

    return first_fit.DATA[data]()
