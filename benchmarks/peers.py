"""kbert and its peers on the same rows, the same weights and the same machine, in one run.

    KBERT_DATA=... python benchmarks/peers.py [--data imdb] [--rounds 3] [--only kbert OpenVINO] [--most 2000 5000]

minilm-l6, one epoch at batch 32, on SST-2 or on long texts of IMDB. Each contestant (benchmarks/contestants.py) that is
installed runs in a process of its own, one after the other, several rounds of all of them:

    process, s      from its start to the last prediction: imports, reading rows, compiling, one fit, 872 predictions
    first fit, s    of the first fit, with all that is imported, prepared or compiled for it
    fit, rows/s     of a second fit in the same process
    first predict, s   of the first prediction of all rows, in which runtimes convert the model
    predict, rows/s of a second prediction, likewise; features, rows/s
    peak, MB        most memory of the process
    accuracy        on the dev rows, after the first fit

Each run is appended to benchmarks/results/peers_sst2.csv or peers_imdb.csv, or to the file that ``--name`` says; the
table of medians, and how many times as fast as each peer kbert is in them, is printed and written to
peers_sst2_table.csv, and so on.
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
from results_file import ResultsFile

RESULTS = Path(__file__).parent / "results"
VERSIONS = ["keras", "transformers", "torch", "jax", "tensorflow", "openvino", "onnxruntime"]
# What else contestants need, by module: the package whose version is stored with their runs.
OTHERS = {"keras_hub": "keras-hub", "sentence_transformers": "sentence-transformers", "optimum.intel": "optimum-intel",
          "optimum.onnxruntime": "optimum-onnx"}  # fmt: skip
MEASURED = ["process_s", "first_fit_s", "fit_rows_s", "first_predict_s", "predict_rows_s", "features_rows_s", "peak_mb"]
MEASURED += ["accuracy"]


def rows_of(data: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and dev rows, read by plain pandas: the peers are not to import kbert."""
    folder = Path(os.environ["KBERT_DATA"]) / data
    if data == "sst2":
        parts = [pd.read_csv(next(folder.glob(f"{part}.tsv*")), sep="\t", quoting=3) for part in ("train", "dev")]
        return tuple(part.set_axis(["text", "label"], axis=1) for part in parts)
    reviews = pd.read_csv(folder / "train.csv.gz").sample(frac=1, random_state=0)[["text", "label"]]
    return reviews[500:], reviews[:500]


def run(data: str, name: str, folder: Path, start: float, most: tuple[int, int]) -> dict:
    """The figures of one contestant, in this process; on at most so many rows to fit and to predict."""
    contestant = CONTESTANTS[data][name]
    n_fit = min(contestant.fit_rows, most[0])
    train, dev = rows_of(data)
    begin, model = time.perf_counter(), contestant.make(folder)
    found = {}
    if n_fit:
        rows = train[:n_fit]
        model.fit(rows.text.tolist(), rows.label.tolist())
        found["first_fit_s"] = time.perf_counter() - begin
        n_dev = min(len(dev), contestant.predict_rows)
        predicted = model.predict(dev.text[:n_dev].tolist())
        found["process_s"] = time.time() - start
        found["accuracy"] = float((predicted == dev.label[:n_dev]).mean())
        seconds = _seconds(model.fit, rows.text.tolist(), rows.label.tolist())
        found["fit_rows_s"] = len(rows) / seconds
    for kind, function in (("predict", "predict"), ("transform", "transform")):
        n = min(getattr(contestant, f"{kind}_rows"), most[1])
        if n:
            texts = train.text[-n:].tolist()
            found[f"first_{kind}_s"] = _seconds(getattr(model, function), texts)
            column = "features_rows_s" if kind == "transform" else "predict_rows_s"
            found[column] = n / _seconds(getattr(model, function), texts)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it may be part of a package, which is imported for that."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def in_a_process(data: str, name: str, folder: Path, most: tuple[int, int]) -> dict | None:
    """The figures of one contestant, in a process of its own; None if it fails."""
    environment = {**os.environ, "KERAS_BACKEND": CONTESTANTS[data][name].backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    call = [
        sys.executable,
        __file__,
        "--data",
        data,
        "--child",
        name,
        "--weights",
        str(folder),
        "--start",
        repr(time.time()),
    ]
    call += ["--most", *map(str, most)]
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
    """Medians, and kbert's over each peer's, for each backend that kbert was measured on."""
    runs = runs.reindex(
        columns=[*runs, *(name for name in MEASURED if name not in runs)]
    )  # a file may be older than these
    medians = runs.groupby("contestant", sort=False)[MEASURED].median()
    lines = []
    for name, line in medians.iterrows():
        ours = "".join(name.rpartition(": ")[:2]) + "kbert"  # of the same kind, such as "features: kbert"
        row = {"contestant": name, "rounds": int((runs.contestant == name).sum())}
        row |= {column: float(f"{value:.4g}") for column, value in line.items()}
        if not name.startswith(ours):
            for backend in ("jax", "tensorflow", "torch"):
                if f"{ours}, {backend}" in medians.index:
                    kbert = medians.loc[f"{ours}, {backend}"]
                    ratios = [kbert.fit_rows_s / line.fit_rows_s, kbert.predict_rows_s / line.predict_rows_s]
                    ratios += [kbert.features_rows_s / line.features_rows_s, line.process_s / kbert.process_s]
                    ratios += [line.first_fit_s / kbert.first_fit_s]
                    names = ("fit", "predict", "features", "process", "first fit")
                    row |= {f"{n}, kbert {backend}": round(r, 2) for n, r in zip(names, ratios, strict=True)}
        lines.append(row)
    found = pd.DataFrame(lines).dropna(axis=1, how="all")
    digits = {column: found[column].map("{:g}".format, na_action="ignore") for column in MEASURED if column in found}
    return found.assign(**digits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=CONTESTANTS, default="sst2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, nargs=2, default=(4000, 10_000), help="rows to fit and to predict, at most")
    parser.add_argument("--only", nargs="+", default=[""], help="contestants of this name, or whose name begins so")
    parser.add_argument("--name", help="of the file of results; peers_sst2 or peers_imdb by default")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument(
        "--weights", type=Path, help="a folder; minilm-l6's by default. Others need a --name of their own"
    )
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.data, options.child, options.weights, options.start, options.most)))
        return
    from kbert.hub import resolve_folder

    if options.weights and not options.name:
        parser.error("--weights needs --name: the runs of other weights go to a file of their own")
    folder = options.weights or resolve_folder("minilm-l6")
    contestants, results = CONTESTANTS[options.data], RESULTS / f"{options.name or f'peers_{options.data}'}.csv"
    exact = set(options.only) & set(contestants)
    begun = tuple(set(options.only) - exact)
    chosen = [name for name in contestants if name in exact or name.startswith(begun)]
    if not chosen:
        parser.error(f"no contestant is called {' or '.join(options.only)}: {', '.join(contestants)}")
    for name in [name for name in chosen if not is_installed(contestants[name].needs)]:
        print(f"{name}: left out, since {contestants[name].needs} is not installed")
        chosen.remove(name)
    preset = preset_of(folder) if any(contestants[name].needs == "keras_hub" for name in chosen) else None
    for n_round in range(0 if options.table else options.rounds):
        for name in chosen:
            weights = preset if contestants[name].needs == "keras_hub" else folder
            if found := in_a_process(options.data, name, weights, options.most):
                versions = {p: version(p) for p in VERSIONS if find_spec(p)}
                versions = {"kbert": version("kbert-learn"), **versions}
                row = {"contestant": name, **{column: found.get(column) for column in MEASURED}}
                contestant = contestants[name]
                versions["peer"] = version(OTHERS[contestant.needs]) if contestant.needs in OTHERS else None
                wanted = contestant.fit_rows, contestant.predict_rows or contestant.transform_rows
                rows = " ".join(str(min(pair)) for pair in zip(wanted, options.most, strict=True))
                row |= {"rows": rows, "date": datetime.date.today().isoformat(), **versions}
                ResultsFile(results).append({n: round(v, 4) if isinstance(v, float) else v for n, v in row.items()})
                print(f"round {n_round + 1}, {name}: {found}", flush=True)
    frame = table(pd.read_csv(results))
    frame.to_csv(results.with_name(f"{results.stem}_table.csv"), index=False)
    print(frame.set_index("contestant").T.to_string())


if __name__ == "__main__":
    main()
