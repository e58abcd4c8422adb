"""Every figure of kbert on a GPU, in stages of at most eight minutes. gpu_stages/README.md says how to run it.

    python benchmarks/gpu.py short --out RESULTS --weights MINILM                        # what is worth most
    KERAS_BACKEND=jax python benchmarks/gpu.py check --out RESULTS --weights MINILM
    KERAS_BACKEND=torch python benchmarks/gpu.py fit --out somewhere --miniature         # toys, on a CPU

Stages: check, fit, predict, dispatch, attention, pretrain, kbert-mini, two-devices, first-fit, choice; and short, which
runs the cells of several of them that are worth most, on both backends. The results are lines of JSON in results.jsonl;
what is there already is not measured again, so that a stage which ran out of time goes on in the next run. What fails
is written down with its error, and tried again in the next run. Nothing needs a network.

The environment variable KBERT_DATA names a folder with sst2, wiki_en and other public data sets
(docs/reference/datasets.md); for those that are not there, texts are made up where that serves. Peers (transformers'
Trainer and pipeline, sentence-transformers) are PyTorch's, and run under KERAS_BACKEND=torch. KBERT_COMMIT is the
commit to write down where the files were copied without the repository.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This folder, for the other benchmarks; and the one above, for the kbert of this checkout, which need not be installed.
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent) if str(folder) not in sys.path]

from gpu_stages.records import Results  # noqa: E402
from gpu_stages.runner import SECONDS, STAGES, run_stage, work  # noqa: E402
from gpu_stages.setting import Setting  # noqa: E402
from gpu_stages.short import MINUTES, run_short  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run a stage. The exit code is 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=(*STAGES, "short"))
    parser.add_argument("--out", type=Path, help="the folder of the results")
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], help="results of earlier runs, to go on from")
    parser.add_argument("--state", type=Path, help="where weights and checkpoints are kept; by default OUT-state")
    parser.add_argument("--weights", type=Path, help="a folder with minilm-l6; by default it has random weights too")
    parser.add_argument("--vocabulary", type=Path, help="a folder with that of kbert-mini; by default it is learned")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of this run; 480 by default")
    parser.add_argument("--minutes", type=float, help="of training kbert-mini in all runs: 20, in short 6 by default")
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose name has one of these in it")
    parser.add_argument("--miniature", action="store_true", help="toy shapes, for a CPU: to see that it runs")
    parser.add_argument("--in-process", action="store_true", help="without a worker process, for debugging")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        values = json.loads(options.worker)
        names = ("out", "state", "data", "weights", "vocabulary")
        paths = {name: Path(values[name]) for name in names if values[name] is not None}
        work(options.stage, Setting(**{**values, **paths}))
        return 0
    if options.out is None:
        parser.error("--out is needed: the folder of the results")
    is_short = options.stage == "short"
    backend = "torch" if is_short else os.environ.get("KERAS_BACKEND", "")
    if backend not in ("jax", "torch"):
        parser.error(f"set the environment variable KERAS_BACKEND to jax or torch; it is {backend!r}")
    data = os.environ.get("KBERT_DATA")
    # A slip here would be noticed when all is measured.
    for name, folder, file in (
        ("--weights", options.weights, "config.json"),
        ("--vocabulary", options.vocabulary, "vocab.txt"),
        ("KBERT_DATA", data and Path(data), "."),
    ):
        if folder and not (folder / file).exists():
            parser.error(f"{name}: {folder} is not there, or has no {file}")
    out = options.out.resolve()
    setting = Setting(
        backend,
        out,
        (options.state or out.with_name(f"{out.name}-state")).resolve(),
        None if data is None else Path(data).resolve(),
        None if options.weights is None else options.weights.resolve(),
        options.miniature,
        options.minutes or (MINUTES if is_short else 20.0),
        None if options.vocabulary is None else options.vocabulary.resolve(),
    )
    for folder in options.earlier:
        take_over(folder, out)
    if is_short:
        written = run_short(setting, options.seconds)
    else:

        def is_chosen(cell: str) -> bool:
            return any(part in cell for part in options.only)

        written = run_stage(options.stage, setting, options.seconds, options.in_process, is_chosen)
    return int(any("error" in line for line in written))


def take_over(earlier: Path, out: Path) -> None:
    """Copy the files of an earlier run's results that are not there yet, and of its lines those of other cells."""
    out.mkdir(parents=True, exist_ok=True)
    for path in earlier.glob("*"):
        if path.name == Results.FILE:
            Results.take_over(path, out)
        elif path.is_file() and not (out / path.name).exists():
            shutil.copyfile(path, out / path.name)


if __name__ == "__main__":
    sys.exit(main())
