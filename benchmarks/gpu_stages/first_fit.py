"""The first fit of a new user, with every default: cells of benchmarks/first_fit.py, which says what they are.

minilm-l6 on some rows of each data set that is there, five draws; the number of rows is that of a label, or for
numbers, tags, questions and options in all. The lines have the columns of benchmarks/results/first_fit.csv.
"""

from __future__ import annotations

import functools
from typing import Any

from gpu_stages import texts
from gpu_stages.setting import Cell, Setting

# Data sets, and the folder of KBERT_DATA that each needs; "messages" are in the repository.
DATA = {
    "sst2": "sst2", "cola": "cola", "mrpc": "mrpc", "rte": "rte", "stsb": "stsb", "agnews": "agnews",
    "messages": "", "conll": "conll2003", "imdb": "imdb", "imdb15": "imdb", "squad": "squad", "qnli": "qnli",
    "qqp": "qqp", "dream": "dream",
}  # fmt: skip
# Numbers of rows, and about how long a cell takes.
ROWS = {8: 15, 16: 15, 64: 15, 250: 15, 1000: 20, 4000: 40}
DRAWS = 5


def cells(setting: Setting) -> list[Cell]:
    """Draw by draw, so that the means of all numbers of rows grow better together."""
    absent = "" if setting.weights or setting.miniature else "there are no weights of minilm-l6: give --weights"
    return [
        Cell(f"{data}, {rows} rows, draw {draw}", {"data": data, "rows": rows, "draw": draw}, seconds, absent=absent)
        for draw in range(setting.pick(DRAWS, 1))
        for rows, seconds in setting.pick(ROWS, {8: 15}).items()
        for data, folder in setting.pick(DATA, {"sst2": "sst2"}).items()
        if not folder or (setting.data and (setting.data / folder).is_dir())
    ]


def measure(setting: Setting, seconds: float, data: str, rows: int, draw: int) -> dict[str, Any]:
    """One cell."""
    import first_fit

    method = f"kbert:weights={texts.weights_folder('minilm-l6', setting)}"
    found = first_fit.measure(data, rows, draw, method, _loaded(data))
    assert found is not None
    return {"data": data, "rows": rows, "draw": draw, "method": "kbert", **found}


@functools.lru_cache(4)
def _loaded(data: str) -> Any:
    import first_fit

    return first_fit.DATA[data]()
