"""Every figure of kbert on a GPU, in stages of at most eight minutes: how to run it is in docs/benchmarks/gpu.md.

    KERAS_BACKEND=jax python benchmarks/gpu.py check --out RESULTS
    KERAS_BACKEND=torch python benchmarks/gpu.py fit --out RESULTS --weights MINILM
    KERAS_BACKEND=torch python benchmarks/gpu.py fit --out somewhere --miniature         # toys, on a CPU

Stages: check, fit, predict, dispatch, attention, pretrain, kbert-mini, two-devices. The results are lines of JSON in
results.jsonl; what is there already is not measured again, so that a stage which ran out of time goes on in the next
run. What fails is written down with its error, and tried again in the next run. Nothing needs a network.

The environment variable KBERT_DATA names a folder with sst2, wiki_en and other public data sets
(docs/reference/datasets.md); for those that are not there, texts are made up where that serves. Peers (transformers'
Trainer and pipeline, sentence-transformers) are PyTorch's, and run under KERAS_BACKEND=torch.
"""

import argparse
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This folder, for the other benchmarks; and the one above, for the kbert of this checkout, which need not be installed.
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent) if str(folder) not in sys.path]

from gpu_stages.runner import SECONDS, STAGES, run_stage, work  # noqa: E402
from gpu_stages.setting import Setting  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run a stage. The exit code is 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--out", type=Path, help="the folder of the results")
    parser.add_argument(
        "--state", type=Path, help="where weights and checkpoints are kept; by default OUT/state. They may be large"
    )
    parser.add_argument("--weights", type=Path, help="a folder with minilm-l6; by default it has random weights too")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of this run; 480 by default")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training kbert-mini, in all runs together")
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose name has one of these in it")
    parser.add_argument("--miniature", action="store_true", help="toy shapes, for a CPU: to see that it runs")
    parser.add_argument("--in-process", action="store_true", help="without a worker process, for debugging")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        values = json.loads(options.worker)
        paths = {name: Path(values[name]) for name in ("out", "state", "data", "weights") if values[name] is not None}
        work(options.stage, Setting(**{**values, **paths}))
        return 0
    if options.out is None:
        parser.error("--out is needed: the folder of the results")
    backend = os.environ.get("KERAS_BACKEND", "")
    if backend not in ("jax", "torch"):
        parser.error(f"set the environment variable KERAS_BACKEND to jax or torch; it is {backend!r}")
    data = os.environ.get("KBERT_DATA")
    setting = Setting(
        backend,
        options.out.resolve(),
        (options.state or options.out / "state").resolve(),
        None if data is None else Path(data).resolve(),
        None if options.weights is None else options.weights.resolve(),
        options.miniature,
        options.minutes,
    )

    def is_chosen(cell: str) -> bool:
        return any(part in cell for part in options.only)

    written = run_stage(options.stage, setting, options.seconds, options.in_process, is_chosen)
    return int(any("error" in line for line in written))


if __name__ == "__main__":
    sys.exit(main())
