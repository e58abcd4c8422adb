"""A table for docs/benchmarks/scores.md: a line a score of GLUE, a column for each way of fine-tuning.

    python benchmarks/glue_page.py

It reads benchmarks/results/glue.csv, where examples/glue.py and pytorch_scores.py write, and makes glue_page.csv there.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import glue

RESULTS = Path(__file__).parent / "results" / "glue.csv"
PYTORCH = "pytorch-transformers"


def way(run: pd.Series) -> str:
    """How a run was fine-tuned: the title of its column."""
    if run.backend == PYTORCH:
        return "PyTorch, the paper's recipe"
    return "kbert, defaults" if glue.is_default(run) else "kbert, the paper's recipe"


def page(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard deviation and number of the seeds, of each score and each way."""
    ways = runs.apply(way, axis=1)
    others = [name for name in glue.SETTING if name not in ("task", "backend")]
    for (task, name), some in runs.groupby(["task", ways]):
        if len(some[others].drop_duplicates()) > 1:
            raise SystemExit(f"{name}, {task}: the runs of {RESULTS} differ in more than backend and seed.")
    of_way = runs.groupby(ways)
    lines = []
    for task, about in glue.TASKS.items():
        for metric in about.metrics:
            cells = {name: _cell(some.loc[some.task == task, metric].dropna()) for name, some in of_way}
            if any(cells.values()):
                lines.append({"task": task, "metric": metric, **cells, "paper, test": about.paper.get(metric, [""])[0]})
    return pd.DataFrame(lines)[["task", "metric", *sorted(of_way.groups, reverse=True), "paper, test"]]


def _cell(scores: pd.Series) -> str:
    if scores.empty:
        return ""
    spread = f" ± {scores.std():.3f}" if len(scores) > 1 else ""
    return f"{scores.mean():.3f}{spread} ({len(scores)})"


if __name__ == "__main__":
    page(glue.read(RESULTS)).to_csv(RESULTS.with_name("glue_page.csv"), index=False)
