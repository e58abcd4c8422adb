"""The table of docs/project/reliability.md: the counts of runs, one column a backend."""

import json
import re

BEGIN, END = "<!-- counts: made by tests/fuzz/run.py --table -->", "<!-- end of counts -->"
KEYS = ("read", "refused", "failed")
BACKENDS = ("torch", "jax", "tensorflow")
_RUNS = re.compile(r"<!-- runs: (.*?) -->\n", re.DOTALL)


def update(page, report):
    """Put the counts of a run beside those of other backends.

    Of its own backend they are added to those of other seeds, where date and versions are the same, and else replaced.
    """
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    found = _RUNS.search(old)
    runs = json.loads(found[1]) if found else {}
    run = {key: report[key] for key in report if key not in ("failures", "backend")} | {"seed": str(report["seed"])}
    earlier = runs.get(report["backend"])
    if earlier and all(earlier[key] == run[key] for key in ("date", "versions")):
        if run["seed"] not in earlier["seed"].split(", "):
            run = _sum(earlier, run)
    runs[report["backend"]] = run
    page.write_text(f"{before}{BEGIN}\n{_table(runs)}{END}{after}", encoding="utf-8")


def _sum(one, other):
    """Two runs as one."""
    readers = {
        name: {key: sum(run["readers"].get(name, {}).get(key, 0) for run in (one, other)) for key in KEYS}
        for name in one["readers"] | other["readers"]
    }
    return {
        **other,
        "seed": f"{one['seed']}, {other['seed']}",
        "wall_seconds": one["wall_seconds"] + other["wall_seconds"],
        "most_seconds": max(one["most_seconds"], other["most_seconds"]),
        "most_bytes": max(one["most_bytes"], other["most_bytes"]),
        "readers": readers,
    }


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
        {key: sum(counts[key] for counts in runs[backend]["readers"].values()) for key in KEYS} for backend in backends
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
