"""What pre-training data is, and what making it costs: on Wikipedia text, on Linux.

    export KBERT_DATA=...
    python benchmarks/pretraining_data.py statistics [--files 2]     # pairs, runs and masks against the paper's numbers
    python benchmarks/pretraining_data.py rows                       # how rows are filled, and what counting them costs
    python benchmarks/pretraining_data.py shards [--files 8]         # text to shards, in one process and in two
    python benchmarks/pretraining_data.py google --google FOLDER [--epochs 1]   # beside the original's script

The vocabulary is that of minilm-l6, which is bert-base-uncased's. Each subcommand appends its lines to
benchmarks/results/pretraining_<subcommand>.csv.

statistics goes through one epoch of pairs (masked LM and next sentence) and one of runs (masked LM alone), in rows of
each length, and looks at every instance and every batch. It ends with an error if a number is not what it must be.

rows packs an epoch of long and of short texts into rows: as kbert does for each of two sizes, and as it did before,
with two texts at most in a row of 128 tokens and eight in one of 512. "count, s" is the time in which the rows are
counted, "make, s" that in which the batches are made.

shards and google measure in new processes, from when the libraries are loaded to when the files are written. Words are
what white space separates; "words a CPU second" divides them by the time that all processes and threads together had a
core, which other work on the machine changes less than the time by the clock.

google takes text that is already a sentence a line, and runs both programs on one and the same core, in turns. Each
reads the text, tokenises it once, and makes and masks pairs of at most 128 tokens for one epoch or several
(dupe_factor). The original writes them all to a TFRecord file. kbert writes the tokens, and makes the batches of each
epoch out of them, in memory.
FOLDER is a checkout of the original (git clone https://github.com/google-research/bert), or what Google put on PyPI of
it, unpacked (pip install --no-deps --target FOLDER bert-tensorflow==1.0.4). It needs TensorFlow 2 and six.
"""

import argparse
import datetime
import os
import re
import resource
import runpy
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from memory import in_new_process

from kbert import BertConfig, datasets
from kbert.pretraining import Corpus, write_shards
from kbert.pretraining import instances as drawing
from kbert.pretraining.batches import batches_of, n_batches_of
from kbert.pretraining.instances import Documents, Instances, draw_pairs, draw_runs
from kbert.pretraining.masking import Masking
from kbert.pretraining.rows import RowShape
from kbert.pretraining.shards import tokenised
from kbert.pretraining.stream import BatchStream
from kbert.text import WordPieceTokenizer

RESULTS = Path(__file__).parent / "results"
VOCABULARY = "minilm-l6"
RATE, SEED = 0.15, 0
# Tokens of a batch.
BATCH_TOKENS = 2**15
# A share in percent may be so far from what is expected.
MASK_MARGIN, PAIR_MARGIN = 0.1, 0.5


def wikipedia(n_files: int) -> list[Path]:
    """The first files of English Wikipedia: a paragraph a line, a blank line between documents."""
    files = sorted(Path(os.environ["KBERT_DATA"], "wiki_en").glob("*.txt.xz"))
    if not 1 <= n_files <= len(files):
        raise SystemExit(f"--files must be 1 to {len(files)}.")
    return files[:n_files]


def n_words(files: list[Path]) -> int:
    """Words of some files."""
    return sum(len(line.split()) for document in Corpus(files, split="lines") for line in document)


def append(what: str, lines: list[dict], *packages: str) -> None:
    """Add lines to a file of results, with the date and the versions, and show them."""
    found = pd.DataFrame(lines).assign(
        date=datetime.date.today().isoformat(),
        kbert=version("kbert-learn"),
        **{name: version(name) for name in ("numpy", *packages)},
    )
    path = RESULTS / f"pretraining_{what}.csv"
    found.to_csv(path, mode="a", header=not path.exists(), index=False)
    print(found.to_string(index=False), flush=True)


# --- Statistics


def pairs_and_chunks(documents: Documents, tokenizer, length: int, seed) -> tuple[Instances, np.ndarray]:
    """Pairs, and the chunk that each is of: its first segment and the one after its last, shape (n_pairs, 2).

    Pairs alone do not tell how many segments their chunk had: nearly all are cut at both ends to fit, and some
    documents have shorter chunks. But `draw_pairs` searches once for the end of each chunk, and once more for the
    end of a random text; these searches are noted.
    """
    searches = []

    def noted(segments, least, first, last):
        found = bisect_left(segments, least, first, last)
        searches.append((first - 1, min(found, last)))
        return found

    with mock.patch.object(drawing, "bisect_left", noted):
        pairs = draw_pairs(documents, tokenizer, length, seed)
    n_searches = 1 + pairs.is_random
    if n_searches.sum() != len(searches):
        raise AssertionError("draw_pairs does not search as this benchmark expects.")
    return pairs, np.array(searches)[np.cumsum(n_searches) - n_searches]


def looked_at_pairs(documents: Documents, pairs: Instances, chunks: np.ndarray) -> dict[str, int]:
    """Counts of what is right and wrong with pairs."""
    bounds = documents.segments[documents.documents]  # of the documents, among the tokens
    ends = pairs.starts + pairs.kept
    document = np.searchsorted(bounds, pairs.starts, "right") - 1  # of a and of b
    is_random = pairs.is_random == 1
    several = np.diff(chunks, axis=1)[:, 0] > 1
    first, last = documents.segments[chunks].T  # of the chunk, among the tokens
    a_inside = (pairs.starts[:, 0] >= first) & (ends[:, 0] <= last)
    b_follows = (pairs.starts[:, 1] >= ends[:, 0]) & (ends[:, 1] <= last)
    return {
        "random": is_random.sum(),
        "chunks of several segments": several.sum(),
        "random of several segments": (several & is_random).sum(),
        "b random and of a's document": (is_random & (document[:, 0] == document[:, 1])).sum(),
        "not what the label says": (~a_inside).sum() + (~is_random & ~b_follows).sum() + (~several & ~is_random).sum(),
        "over the end of a document": (ends > bounds[document + 1]).sum(),
    }


def not_once(documents: Documents, runs: Instances) -> int:
    """Tokens of the documents that are in no run, or in several."""
    n = len(documents.tokens)
    begin, end = (np.bincount(places[:, 0], minlength=n + 1) for places in (runs.starts, runs.starts + runs.kept))
    return int((np.cumsum(begin - end)[:n] != 1).sum())


class Prints:
    """A number for each text, by which the texts of the batches are known again among the instances.

    It is a sum over the tokens, each times random 64 bits that belong to its position and its segment.
    """

    def __init__(self, length: int):
        self.factors = np.random.default_rng(1).integers(1, 2**64, (2, length), "uint64")

    def __call__(self, token_ids, segment_ids, position_ids, labels) -> np.ndarray:
        """Those of texts that stand one after the other; ``labels`` has one number for each text."""
        products = (token_ids.astype("uint64") + 1) * self.factors[segment_ids, position_ids]
        return np.add.reduceat(products, np.flatnonzero(position_ids == 0)) + labels.astype("uint64")

    def of_instances(self, instances: Instances) -> np.ndarray:
        """Those of all instances, as they are before masking."""
        found = []
        for first in range(0, len(instances), 4096):
            some = slice(first, first + 4096)
            texts = instances.take(some)
            position = np.arange(len(texts.tokens.values)) - np.repeat(texts.splits[:-1], texts.lengths)
            segment = (position >= np.repeat(texts.first_length, texts.lengths)).astype(int)
            found.append(self(texts.tokens.values, segment, position, instances.is_random[some]))
        return np.concatenate(found)


def looked_at_batches(instances: Instances, tokenizer, length: int, seed) -> dict[str, int]:
    """Counts of what is right and wrong with the batches of one epoch."""
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
    wanted = np.array([max(1, round(RATE * n)) for n in range(length + 1)])
    prints, found = Prints(length), []
    total = dict.fromkeys(("places", "tokens", "texts", "chosen", "wrong", "special", "mask", "same", "other"), 0)
    for batch in batches_of(instances, Masking(tokenizer, RATE), BATCH_TOKENS // length, length, seed):
        text_ids, labels = batch.inputs["text_ids"], batch.targets["nsp"]
        B, K = labels.shape
        real = text_ids > 0
        number = np.arange(B)[:, None] * K + text_ids - 1  # of the text that a token is of
        lengths = np.bincount(number[real], minlength=B * K)
        row, slot = np.nonzero(batch.weights["mlm"])
        position = batch.inputs["masked_positions"][row, slot]
        # A place that is chosen twice is one too few, and one in the padding is in no text.
        chosen = np.zeros_like(real)
        chosen[row, position] = True
        n_chosen = np.bincount(number[chosen & real], minlength=B * K)
        old, new = batch.targets["mlm"][row, slot], batch.inputs["token_ids"][row, position]
        restored = batch.inputs["token_ids"].copy()
        restored[row, position] = old
        found.append(
            prints(
                restored[real],
                *(batch.inputs[name][real] for name in ("segment_ids", "position_ids")),
                labels.ravel()[lengths > 0],
            )
        )
        for name, count in {
            "places": real.size, "tokens": real.sum(), "texts": (lengths > 0).sum(), "chosen": len(row),
            "wrong": (n_chosen != np.where(lengths > 0, wanted[lengths], 0)).sum(),
            "special": np.isin(old, special).sum(), "mask": (new == tokenizer.mask_id).sum(),
            "same": ((new == old) & (new != tokenizer.mask_id)).sum(),
            "other": ((new != old) & (new != tokenizer.mask_id)).sum(),
        }.items():  # fmt: skip
            total[name] += int(count)
    before, after = prints.of_instances(instances), np.concatenate(found)
    _, which = np.unique(np.concatenate([before, after]), return_inverse=True)
    surplus = np.bincount(which[: len(before)], minlength=len(which)) - np.bincount(
        which[len(before) :], minlength=len(which)
    )
    return {**total, "not an instance": int(np.abs(surplus).sum())}


def epoch(shards, task: str, length: int) -> dict[str, int]:
    """One epoch over all shards: counts of what is in it."""
    total: dict[str, int] = {}
    for number in range(len(shards)):
        documents, seed = shards[number], [SEED, number, length]
        if task == "pairs":
            instances, chunks = pairs_and_chunks(documents, shards.tokenizer, length, [*seed, 0])
            counts = looked_at_pairs(documents, instances, chunks)
        else:
            instances = draw_runs(documents, shards.tokenizer, length, [*seed, 0])
            counts = {"not once": not_once(documents, instances)}
        counts |= looked_at_batches(instances, shards.tokenizer, length, [*seed, 1])
        for name, count in counts.items():
            total[name] = total.get(name, 0) + int(count)
    return total


def measures(count: dict[str, int], task: str, vocab_size: int) -> list[tuple[str, float, float | None, float]]:
    """Names, values, what they must be if anything, and how far they may be from it."""

    def percent(part, whole):
        return 100 * count[part] / count[whole]

    # A replacement is drawn from the whole vocabulary, and so may be the token that was there, or the mask.
    by_chance = 10 / vocab_size
    found = [
        ("texts", count["texts"], None, 0),
        ("tokens to predict", count["chosen"], None, 0),
        ("texts with another number of them than max(1, round(0.15 * length))", count["wrong"], 0, 0),
        ("of these special tokens", count["special"], 0, 0),
        ("% masked", percent("mask", "chosen"), 80 + by_chance, MASK_MARGIN),
        ("% unchanged", percent("same", "chosen"), 10 + by_chance, MASK_MARGIN),
        ("% replaced", percent("other", "chosen"), 10 - 2 * by_chance, MASK_MARGIN),
        ("texts that are not once in the batches, with their label", count["not an instance"], 0, 0),
        ("% of the batches that is padding", 100 - percent("tokens", "places"), None, 0),
    ]
    if task == "runs":
        return [*found, ("tokens that are not read once", count["not once"], 0, 0)]
    return [
        *found,
        ("% of pairs of which b is random", percent("random", "texts"), None, 0),
        ("% of chunks of one segment", 100 - percent("chunks of several segments", "texts"), None, 0),
        (
            "% random of the other chunks",
            percent("random of several segments", "chunks of several segments"), 50, PAIR_MARGIN,
        ),
        ("pairs whose random b is of a's document", count["b random and of a's document"], 0, 0),
        ("pairs that are not what their label says", count["not what the label says"], 0, 0),
        ("texts over the end of a document", count["over the end of a document"], 0, 0),
    ]  # fmt: skip


def statistics(n_files: int, lengths: list[int]) -> None:
    """Look at an epoch of each task and length."""
    tokenizer = WordPieceTokenizer.from_pretrained(VOCABULARY)
    lines: dict[str, dict] = {}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Corpus(wikipedia(n_files)), tokenizer, folder)
        n_tokens = shards.manifest["tokens"]
        for task in ("pairs", "runs"):
            for length in lengths:
                count = epoch(shards, task, length)
                for name, value, must, margin in measures(count, task, tokenizer.vocab_size):
                    line = lines.setdefault(name, {"measure": name, "must be": ""})
                    if must is not None:
                        line["must be"] = f"{must:.4f} ± {margin}" if margin else str(must)
                        if not abs(value - must) <= margin:
                            failed.append(f"{task} of {length}: {name}: {value}, must be {line['must be']}")
                    line[f"{task} {length}"] = str(value) if isinstance(value, int) else f"{value:.3f}"
    # "must be" last, as the tasks differ in what they have.
    table = [{**line, "must be": line.pop("must be"), "tokens read": n_tokens} for line in lines.values()]
    append("statistics", table)
    if failed:
        raise SystemExit("\n".join(["Not as it must be:", *failed]))


# --- Rows


def rows() -> None:
    """Pack an epoch of Wikipedia and one of SST-2's sentences."""
    tokenizer = WordPieceTokenizer.from_pretrained(VOCABULARY)
    masking = Masking(tokenizer, RATE)
    articles = Corpus(lambda: islice(Corpus(wikipedia(1)), 3000), split="lines")
    sentences = Corpus(datasets.load("sst2", "train").text.drop_duplicates()[:10_000], split="lines")
    lines = []
    for name, corpus, nsp, length in (
        ("Wikipedia, pairs", articles, True, 128), ("Wikipedia, pairs", articles, True, 512),
        ("Wikipedia, runs", articles, False, 128), ("SST-2's sentences, runs", sentences, False, 128),
    ):  # fmt: skip
        (documents,) = tokenised(corpus, tokenizer)
        instances = (draw_pairs if nsp else draw_runs)(documents, tokenizer, length, [SEED, 0])
        most = max(2, length // 64)
        shapes = {"before": RowShape(length, most, int(RATE * length) + most)}
        for size in ("tiny", "base"):
            stream = BatchStream(
                [documents], tokenizer, BertConfig.from_size(size),
                nsp=nsp, masking=masking, lengths=[length], batch_sizes=[32], seed=SEED,
            )  # fmt: skip
            shapes[size] = stream.shape(0)
        for which, shape in shapes.items():
            start = time.perf_counter()
            n_batches = n_batches_of(instances, masking, 32, [SEED, 1], shape)
            counted = time.perf_counter() - start
            start = time.perf_counter()
            for _ in batches_of(instances, masking, 32, length, [SEED, 1], shape):
                pass
            made = time.perf_counter() - start
            lines.append({
                "text": name, "row": length, "size": which, "tokens": int(instances.lengths.sum()),
                "texts in a row": shape.texts, "masks in a row": shape.masked, "batches of 32": n_batches,
                "padding, %": round(100 * (1 - instances.lengths.sum() / (n_batches * 32 * length)), 1),
                "count, s": round(counted, 2), "make, s": round(made, 2),
            })  # fmt: skip
    append("rows", lines)


# --- Shards


def processes() -> dict[int, int]:
    """This process and those that it started, directly or not, and which started each."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            pass
    found = {os.getpid(): 0}
    while more := {i: parent for i, parent in parents.items() if parent in found and i not in found}:
        found |= more
    return found


class PeakMemory:
    """The most resident memory that this process and each that it starts ever have, in MB."""

    def __enter__(self):
        self.highest: dict[int, float] = {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def watch(self):
        # Linux keeps the highest, so that it is enough to look from time to time, if not at the very end.
        while not self.stop.wait(0.5):
            for process in processes():
                try:
                    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
                except OSError:
                    continue
                if found:
                    self.highest[process] = int(found[1]) * 1024 / 1e6


def cpu_seconds() -> float:
    """Time that the threads of this process, and its children that have ended, had a core."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def written(files: list[Path], words: int, jobs: int) -> dict:
    """Write shards, with the libraries loaded."""
    from joblib.externals.loky import get_reusable_executor

    tokenizer = WordPieceTokenizer.from_pretrained(VOCABULARY)
    corpus = Corpus(files)
    with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
        start, cpu = time.perf_counter(), cpu_seconds()
        shards = write_shards(corpus, tokenizer, folder, n_jobs=jobs)
        seconds = time.perf_counter() - start
        time.sleep(1)
        get_reusable_executor().shutdown(wait=True)  # so that its processes count
        cpu = cpu_seconds() - cpu
        n_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        tokens = shards.manifest["tokens"]
    return {
        "files": len(files), "MB of files": round(sum(path.stat().st_size for path in files) / 1e6, 1), "words": words,
        "tokens": tokens, "jobs": jobs, "units": len(corpus.units()), "seconds": round(seconds, 1),
        "CPU seconds": round(cpu, 1), "words a second": round(words / seconds),
        "words a CPU second": round(words / cpu), "MB of the first process": round(memory.highest.pop(os.getpid())),
        "MB of the biggest other": round(max(memory.highest.values(), default=0)),
        "MB written": round(n_bytes / 1e6, 1),
    }  # fmt: skip


def shards(n_files: int, jobs: list[int]) -> None:
    """Write shards in so many processes."""
    files = wikipedia(n_files)
    words = n_words(files)
    for n in jobs:
        append("shards", [in_new_process(written, files, words, n)], "tokenizers", "sentencex")


# --- Beside the original


def one_core(core: int) -> None:
    """Run this process on one core, in one thread as far as that can be said."""
    os.sched_setaffinity(0, {core})
    os.environ |= {
        "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip


def clocks() -> np.ndarray:
    """Seconds, and seconds on a core."""
    return np.array([time.perf_counter(), time.process_time()])


def of_kbert(text: Path, folder: Path, core: int, epochs: int) -> tuple[np.ndarray, dict]:
    """Text to the batches of some epochs."""
    one_core(core)
    import joblib  # noqa: F401

    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    masking = Masking(tokenizer, RATE)
    start = clocks()
    with tempfile.TemporaryDirectory() as target:
        shards = write_shards(Corpus(text, split="lines"), tokenizer, target, n_jobs=1)
        n_instances = n_predicted = 0
        for epoch in range(epochs):
            for number in range(len(shards)):
                pairs = draw_pairs(shards[number], tokenizer, 128, [SEED, number, epoch, 0])
                n_instances += len(pairs)
                for batch in batches_of(pairs, masking, 32, 128, [SEED, number, epoch, 1]):
                    n_predicted += int(np.count_nonzero(batch.weights["mlm"]))
        taken = clocks() - start
    return taken, {"tokens": shards.manifest["tokens"], "pairs": n_instances, "predicted": n_predicted}


def of_google(text: Path, folder: Path, core: int, epochs: int, google: Path) -> tuple[np.ndarray, dict]:
    """Text to a TFRecord file, by create_pretraining_data.py as it is."""
    one_core(core)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it shows the first of its instances
    import tensorflow.compat.v1 as tf
    from absl import flags

    script = google / "create_pretraining_data.py"
    sys.path[:0] = [str(google), str(google.parent)]
    # It was written for TensorFlow 1, of which TensorFlow 2 still has what it uses.
    with mock.patch.dict(sys.modules, {"tensorflow": tf}):
        names = runpy.run_path(str(script))
    record = folder / "google.tfrecord"
    flags.FLAGS([
        "create_pretraining_data", f"--input_file={text}", f"--output_file={record}",
        f"--vocab_file={folder / 'vocab.txt'}", "--max_seq_length=128", "--max_predictions_per_seq=20",
        f"--masked_lm_prob={RATE}", f"--dupe_factor={epochs}",
    ])  # fmt: skip
    # How many it makes, for the comparison.
    found = []
    instances = names["main"].__globals__["create_training_instances"]
    names["main"].__globals__["create_training_instances"] = lambda *args: found.append(instances(*args)) or found[0]
    start = clocks()
    names["main"](None)
    taken = clocks() - start
    return taken, {
        "pairs": len(found[0]),
        "predicted": sum(len(instance.masked_lm_positions) for instance in found[0]),
    }


def google(folder: Path | None, words: int, rounds: int, epochs: int) -> None:
    """Both programs in turns."""
    script = "create_pretraining_data.py"
    found = [place for place in (folder, folder and folder / "bert") if place and (place / script).exists()]
    if not found:
        raise SystemExit(
            f"There is no {script}. Get the original with git clone https://github.com/google-research/bert, or pip "
            "install --no-deps --target bert bert-tensorflow==1.0.4, and give the folder as --google."
        )
    core = min(os.sched_getaffinity(0))
    times, facts = {"original": [], "kbert": []}, {}
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        WordPieceTokenizer.from_pretrained(VOCABULARY).save(work)
        text, n = work / "text.txt", 0
        with open(text, "w") as file:
            for document in Corpus(wikipedia(1)):
                if n >= words:
                    break
                n += sum(len(sentence.split()) for sentence in document)
                file.write("\n".join(document) + "\n\n")
        run = {
            "original": (of_google, text, work, core, epochs, found[0]),
            "kbert": (of_kbert, text, work, core, epochs),
        }
        for i in range(rounds):
            for name in times:
                taken, facts[name] = in_new_process(*run[name])
                times[name].append(taken)
                print(f"round {i + 1}, {name}: {taken[0]:.2f} s, {taken[1]:.2f} CPU s, {facts[name]}", flush=True)
    ratios = np.array(times["original"])[:, 1] / np.array(times["kbert"])[:, 1]
    lines = []
    for name, taken in times.items():
        seconds, cpu = np.median(taken, axis=0)
        fast = ratios if name == "kbert" else np.ones(1)
        lines.append({
            "program": name, "words": n, "epochs": epochs, "pairs": facts[name]["pairs"],
            "tokens to predict": facts[name]["predicted"], "rounds": rounds, "seconds": round(seconds, 2),
            "CPU seconds": round(cpu, 2), "words a CPU second": round(n / cpu),
            "times as fast": round(float(np.median(fast)), 1), "least": round(fast.min(), 1),
            "most": round(fast.max(), 1),
        })  # fmt: skip
    append("google", lines, "tokenizers", "tensorflow")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("statistics")
    command.add_argument("--files", type=int, default=2)
    command.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    commands.add_parser("rows")
    command = commands.add_parser("shards")
    command.add_argument("--files", type=int, default=8)
    command.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    command = commands.add_parser("google")
    command.add_argument("--google", type=Path)
    command.add_argument("--words", type=int, default=1_000_000)
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "statistics":
        statistics(arguments.files, arguments.lengths)
    elif arguments.what == "rows":
        rows()
    elif arguments.what == "shards":
        shards(arguments.files, arguments.jobs)
    else:
        google(arguments.google, arguments.words, arguments.rounds, arguments.epochs)


if __name__ == "__main__":
    main()
