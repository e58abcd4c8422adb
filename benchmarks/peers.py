"""kbert and its peers on the same rows of SST-2, the same weights and the same machine, in one run.

    KBERT_DATA=... python benchmarks/peers.py [--rounds 3] [--only kbert Trainer]

minilm-l6, one epoch at batch 32. Each contestant (benchmarks/contestants.py) that is installed runs in a process of its
own, one after the other, several rounds of all of them:

    process, s      from its start to the last prediction: imports, reading rows, compiling, one fit, 872 predictions
    fit, rows/s     of a second fit in the same process, when all is compiled that stays compiled
    predict, rows/s of a second prediction, likewise; features, rows/s
    peak, MB        most memory of the process
    accuracy        on the 872 dev rows, after the first fit

Each run is appended to benchmarks/results/peers.csv; the table of medians, and how many times as fast as each peer
kbert is in them, is printed and written to benchmarks/results/peers_table.csv.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from contestants import CONTESTANTS

RESULTS = Path(__file__).parent / "results" / "peers.csv"
TABLE = RESULTS.with_name("peers_table.csv")
MEASURED = ["process_s", "fit_rows_s", "predict_rows_s", "features_rows_s", "peak_mb", "accuracy"]


def run(name: str, folder: Path, start: float) -> dict:
    """The figures of one contestant, in this process."""
    contestant = CONTESTANTS[name]
    # Plain pandas: the peers are not to import kbert.
    sst2 = Path(os.environ["KBERT_DATA"]) / "sst2"
    train, dev = (pd.read_csv(next(sst2.glob(f"{part}.tsv*")), sep="\t", quoting=3) for part in ("train", "dev"))
    train, dev = (part.set_axis(["text", "label"], axis=1) for part in (train, dev))
    model = contestant.make(folder)
    found = {}
    if contestant.fit_rows:
        rows = train[: contestant.fit_rows]
        model.fit(rows.text.tolist(), rows.label.tolist())
        n_dev = min(len(dev), contestant.predict_rows)
        predicted = model.predict(dev.text[:n_dev].tolist())
        found["process_s"] = time.time() - start
        found["accuracy"] = float((predicted == dev.label[:n_dev]).mean())
        seconds = _seconds(model.fit, rows.text.tolist(), rows.label.tolist())
        found["fit_rows_s"] = len(rows) / seconds
    for kind, function in (("predict", "predict"), ("transform", "transform")):
        n = getattr(contestant, f"{kind}_rows")
        if n:
            texts = train.text[-n:].tolist()
            getattr(model, function)(texts)
            column = "features_rows_s" if kind == "transform" else "predict_rows_s"
            found[column] = n / _seconds(getattr(model, function), texts)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def in_a_process(name: str, folder: Path) -> dict | None:
    """The figures of one contestant, in a process of its own; None if it fails."""
    environment = {**os.environ, "KERAS_BACKEND": CONTESTANTS[name].backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    call = [sys.executable, __file__, "--child", name, "--weights", str(folder), "--start", repr(time.time())]
    done = subprocess.run(call, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"{name} failed:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    return json.loads(lines[-1])


def preset_of(folder: Path) -> Path:
    """The same weights as a KerasHub preset."""
    preset = Path(tempfile.mkdtemp(), "preset")
    call = [sys.executable, "-m", "kbert", "convert", str(folder), str(preset), "--to", "kerashub"]
    subprocess.run(call, check=True, capture_output=True)
    return preset


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Medians, and kbert's over each peer's: the backend that the peer runs on, or else kbert's fastest."""
    medians = runs.groupby("contestant", sort=False)[MEASURED].median()
    lines = []
    for name, line in medians.iterrows():
        ours = "".join(name.rpartition(": ")[:2]) + "kbert"  # of the same kind, such as "features: kbert"
        row = {"contestant": name, "rounds": int((runs.contestant == name).sum()), **line.round(3)}
        if not name.startswith(ours):
            for backend in ("jax", "tensorflow", "torch"):
                if f"{ours}, {backend}" in medians.index:
                    kbert = medians.loc[f"{ours}, {backend}"]
                    ratios = [kbert.fit_rows_s / line.fit_rows_s, kbert.predict_rows_s / line.predict_rows_s]
                    ratios += [kbert.features_rows_s / line.features_rows_s, line.process_s / kbert.process_s]
                    names = ("fit", "predict", "features", "process")
                    row |= {f"{n}, kbert {backend}": round(r, 2) for n, r in zip(names, ratios, strict=True)}
        lines.append(row)
    return pd.DataFrame(lines).dropna(axis=1, how="all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="contestants whose name begins so")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--weights", type=Path, help="a folder; minilm-l6's by default")
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.child, options.weights, options.start)))
        return
    from kbert.hub import resolve_folder

    folder = options.weights or resolve_folder("minilm-l6")
    chosen = [name for name in CONTESTANTS if name.startswith(tuple(options.only))]
    for name in [name for name in chosen if find_spec(CONTESTANTS[name].needs) is None]:
        print(f"{name}: left out; pip install {CONTESTANTS[name].needs.replace('_', '-')}")
        chosen.remove(name)
    preset = preset_of(folder) if any(CONTESTANTS[name].needs == "keras_hub" for name in chosen) else None
    for n_round in range(0 if options.table else options.rounds):
        for name in chosen:
            if found := in_a_process(name, preset if CONTESTANTS[name].needs == "keras_hub" else folder):
                versions = {p: version(p) for p in ("keras", "transformers", "torch", "jax", "tensorflow")}
                versions = {"kbert": version("kbert-learn"), **versions}
                row = {"contestant": name, **{column: found.get(column) for column in MEASURED}}
                row |= {"date": datetime.date.today().isoformat(), **versions}
                frame = pd.DataFrame([row]).round(4)
                frame.to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)
                print(f"round {n_round + 1}, {name}: {found}", flush=True)
    frame = table(pd.read_csv(RESULTS))
    frame.to_csv(TABLE, index=False)
    print(frame.set_index("contestant").T.to_string())


if __name__ == "__main__":
    main()
