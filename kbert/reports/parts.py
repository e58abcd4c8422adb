"""Parts of a report's page: tables, bars and the diagram of reliability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbert.plots.page import escaped

STYLE = """
.kbert-display h2{font-size:17px;line-height:1.4;margin:0 0 4px}
.kbert-display code{font-size:13px;overflow-wrap:anywhere}
.kbert-display .wide{overflow-x:auto;margin:6px 0}
.kbert-display table{border-collapse:collapse;font-size:14px;line-height:1.5;font-variant-numeric:tabular-nums;margin:0}
.kbert-display th,.kbert-display td{border:0;border-bottom:1px solid var(--line);padding:3px 6px;text-align:right;
font-weight:400;overflow-wrap:normal;background:none;color:var(--ink)}
.kbert-display thead th{color:var(--quiet);vertical-align:bottom}
.kbert-display tr>:first-child{text-align:left;padding-left:0}
.kbert-display .bar{display:block;position:relative;width:clamp(44px,12vw,180px);height:12px;background:var(--line);
border-radius:2px}
.kbert-display .bar i{position:absolute;inset:0 auto 0 0;background:rgb(var(--for));border-radius:2px}
.kbert-display .bar b{position:absolute;top:5px;height:2px;background:var(--ink)}
.kbert-display .matrix td{background:rgba(var(--for),var(--strength));text-align:center;min-width:2em}
.kbert-display .figures{display:flex;flex-wrap:wrap;gap:8px 24px;margin:6px 0}
.kbert-display figure{margin:0;width:150px}
.kbert-display figcaption{color:var(--quiet);font-size:14px;line-height:1.4}
.kbert-display .interval{white-space:nowrap}
.kbert-display svg{display:block;width:150px;height:150px;margin:6px 0 10px;overflow:visible}
.kbert-display svg .frame{fill:none;stroke:var(--line)}
.kbert-display svg .curve{fill:none;stroke:var(--quiet)}
.kbert-display svg circle{fill:rgb(var(--for));stroke:var(--ink);stroke-width:.6}
.kbert-display p.row{margin-bottom:2px}
""".strip()


def table(head: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already; the first cell of each line is its head."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{line[0]}</th>' + "".join(_cell(cell) for cell in line[1:]) + "</tr>" for line in lines
    )
    return f'<div class="wide"><table class="{kind}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: str) -> str:
    return cell if cell.startswith("<td") else f"<td>{cell}</td>"


def shaded_table(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Counts, each as strong as its share of its line."""
    lines = []
    for label, line in counts.items():
        total = sum(line.values()) or 1
        cells = [f'<td style="--strength:{count / total:.3f}">{int(count)}</td>' for count in line.values()]
        lines.append((escaped(label), *cells))
    return table(("", *map(escaped, counts)), lines, "matrix")


def bar(value: float, low: float, high: float) -> str:
    """A score from 0 to 1 as a bar, with its interval as a line on it."""
    ends = [100 * min(max(end, 0.0), 1.0) if math.isfinite(end) else 0.0 for end in (value, low, high)]
    return (
        f'<span class="bar"><i style="width:{ends[0]:.1f}%"></i>'
        f'<b style="left:{ends[1]:.1f}%;width:{ends[2] - ends[1]:.1f}%"></b></span>'
    )


def interval(found: Mapping[str, float]) -> str:
    """The ends of an interval."""
    return f'<span class="interval">{number(found["low"])} – {number(found["high"])}</span>'


def number(value: float) -> str:
    """A count as it is, another number with three digits; a dash for what is none."""
    if not math.isfinite(value):
        return "–"
    return f"{int(value):,}" if isinstance(value, int) or value.is_integer() and value > 1 else f"{value:.3f}"


def reliability(found: Mapping[str, Any], name: str) -> str:
    """A diagram of reliability (DeGroot and Fienberg, 1983): a point for each bin, larger for more rows."""
    bins, most = found["bins"], max(part["rows"] for part in found["bins"])
    points = [(100 * part["probability"], 100 - 100 * part["right"]) for part in bins]
    circles = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{1.5 + 3.5 * math.sqrt(part["rows"] / most):.1f}"><title>'
        f"{part['rows']:,} with a mean probability of {part['probability']:.3f}: {part['right']:.3f} are right"
        "</title></circle>"
        for (x, y), part in zip(points, bins, strict=True)
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<figure><svg viewBox="0 0 100 100" role="img" aria-label="Reliability {escaped(name)}">'
        '<rect class="frame" width="100" height="100"></rect>'
        '<line class="frame" x1="0" y1="100" x2="100" y2="0"></line>'
        f'<polyline class="curve" points="{line}"></polyline>{circles}</svg>'
        f"<figcaption>{escaped(name)}: expected calibration error {found['error']:.3f}; "
        f"by chance alone {found['error_by_chance']:.3f}</figcaption></figure>"
    )
