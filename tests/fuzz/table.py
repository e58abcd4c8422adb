"""The table of docs/reliability.md: the counts of runs, one column a backend."""

import json
import re

BEGIN, END = "<!-- counts: made by tests/fuzz/run.py --table -->", "<!-- end of counts -->"
BACKENDS = ("torch", "jax", "tensorflow")
_RUNS = re.compile(r"<!-- runs: (.*?) -->\n", re.DOTALL)


def update(page, report):
    """Put the counts of a run beside those of other backends; of its own backend it replaces them."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    found = _RUNS.search(old)
    runs = json.loads(found[1]) if found else {}
    runs[report["backend"]] = {key: report[key] for key in report if key not in ("failures", "backend")}
    page.write_text(f"{before}{BEGIN}\n{_table(runs)}{END}{after}", encoding="utf-8")


def _table(runs):
    backends = [backend for backend in BACKENDS if backend in runs]
    names = dict.fromkeys(name for backend in backends for name in runs[backend]["readers"])
    lines = [
        f"<!-- runs: {json.dumps(runs)} -->\n",
        "| | " + " | ".join(f"{backend}: read / refused / failed" for backend in backends) + " |",
        "|---|" + "---|" * len(backends),
    ]
    for name in names:
        lines.append(
            f"| {name} | " + " | ".join(_cell(runs[backend]["readers"].get(name)) for backend in backends) + " |"
        )
    totals = [
        {key: sum(counts[key] for counts in runs[backend]["readers"].values()) for key in ("read", "refused", "failed")}
        for backend in backends
    ]
    lines.append("| **all** | " + " | ".join(map(_cell, totals)) + " |")
    for title, fact in (
        ("most computing in a case", lambda run: f"{run['most_seconds']:.1f} s"),
        ("most memory in a case", lambda run: f"{run['most_bytes'] / 1e6:.0f} MB"),
        ("seed, time", lambda run: f"{run['seed']}, {run['wall_seconds']:,} s"),
        ("date", lambda run: run["date"]),
        ("versions", lambda run: ", ".join(f"{name} {version}" for name, version in run["versions"].items())),
    ):
        lines.append(f"| {title} | " + " | ".join(fact(runs[backend]) for backend in backends) + " |")
    return "\n".join(lines) + "\n"


def _cell(counts):
    return f"{counts['read']:,} / {counts['refused']:,} / {counts['failed']:,}" if counts else "not run"
