"""Pre-train a BERT from nothing but text, fine-tune it, and see what the pre-training was worth.

    python examples/pretrain.py                                       # a small slice, to see it run
    python examples/pretrain.py --documents 0 --minutes 50 --mask-rate 0.4 --no-nsp --max-length 64 --batch-size 64 \\
        --learning-rate 3e-3 --rows 10000 --epochs 8 --fine-tuning-rate 3e-4 --seeds 0 1 2 --out bert-tiny   # an hour

Wikipedia -> vocabulary -> token shards -> masked LM and next sentence -> a weights folder -> a classifier on SST-2, and
beside it the same network from a random start. The environment variable KBERT_DATA names the folder that holds both
(docs/reference/datasets.md); `--text` takes other text. The masked-LM loss at the end is always under masks of 15%;
more of them while it is trained (`--mask-rate`) give a small network more to learn from each row. A command that was
stopped goes on where it was. Then the folder has the vocabulary, the shards, the checkpoints, the model, the curve as a
picture, pretraining.csv and results.csv.
"""

import argparse
import datetime
import itertools
import os
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from kbert import BertConfig, WordPieceTokenizer, datasets
from kbert.errors import DatasetNotFoundError
from kbert.pretraining import Corpus, PretrainingOptions, Shards, write_shards

HELD_OUT_DOCUMENTS = 50
MASK_RATE = 0.15
START = {True: "pre-trained", False: "random start"}


def corpora(options: argparse.Namespace) -> tuple[Corpus, Corpus]:
    """Text to train on, and the first documents of the last file, which is left out of it, to evaluate on."""
    if options.text is None and "KBERT_DATA" not in os.environ:
        raise SystemExit(
            "Set KBERT_DATA to a folder that has wiki_en (docs/reference/datasets.md), or give --text FILE ..."
        )
    files = options.text or sorted(Path(os.environ["KBERT_DATA"], "wiki_en").glob("*.txt*"))
    if not files:
        raise SystemExit(f"There is no text in {Path(os.environ['KBERT_DATA'], 'wiki_en')}.")
    if len(files) == 1:
        held_out, training = itertools.tee(Corpus(files[0]))
        n = options.documents or None
        return Corpus(list(itertools.islice(training, HELD_OUT_DOCUMENTS, n))), _first(held_out, HELD_OUT_DOCUMENTS)
    training = _first(Corpus(files[0]), options.documents) if options.documents else Corpus(files[:-1])
    return training, _first(Corpus(files[-1]), HELD_OUT_DOCUMENTS)


def _first(documents, n: int) -> Corpus:
    return Corpus(list(itertools.islice(documents, n)))


def pretrained(options: argparse.Namespace) -> Path:
    """The folder of the model, once it is trained."""
    # Here, because loading a backend takes seconds.
    from kbert import BertForPreTraining
    from kbert.plots import PretrainingDisplay
    from kbert.pretraining import Pretraining
    from kbert.pretraining.evaluation import held_out_batches, held_out_scores
    from kbert.pretraining.masking import Masking

    out, training, held_out = options.out, *corpora(options)
    start = time.perf_counter()
    from_before = (out / "vocabulary" / "vocab.txt").exists()
    if not from_before:
        segments = (segment for document in training for segment in document)
        WordPieceTokenizer.train(segments, vocab_size=options.vocab_size).save(out / "vocabulary")
    tokenizer = WordPieceTokenizer.from_pretrained(out / "vocabulary")
    took = f"those of {out}" if from_before else f"{time.perf_counter() - start:.0f} s"
    if from_before and tokenizer.vocab_size > options.vocab_size:
        raise SystemExit(
            f"{out} has a vocabulary of {tokenizer.vocab_size:,} pieces, and --vocab-size is {options.vocab_size:,}: "
            "give --out another folder."
        )
    print(f"vocabulary: {tokenizer.vocab_size:,} pieces, {took}")
    start = time.perf_counter()
    shards = write_shards(training, tokenizer, out / "shards", n_jobs=-1)
    evaluation_shards = write_shards(held_out, tokenizer, out / "held-out")
    print(f"shards: {shards.manifest['tokens']:,} tokens, {time.perf_counter() - start:.0f} s")

    config = BertConfig.from_dict({**BertConfig.from_size(options.size).to_dict(), "vocab_size": tokenizer.vocab_size})
    model = BertForPreTraining(config.with_dropout(options.dropout), nsp=options.nsp, seed=0)
    settings = PretrainingOptions(
        max_seconds=60 * options.minutes,
        phases=((options.max_length, 1.0),),
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        mask_rate=options.mask_rate,
        evaluate_every=200,
        checkpoint_every=500,
        verbose=1,
    )
    run = Pretraining(model, tokenizer, shards, settings, evaluation_shards[0], out / "run")
    history = run.run()
    model.save_pretrained(out / "model")
    tokenizer.save(out / "model")
    PretrainingDisplay.from_history(history).figure_.savefig(out / "curve.png", dpi=150)

    masking = Masking(tokenizer, MASK_RATE)
    scores = held_out_scores(model, tokenizer, evaluation_shards[0], masking, options.batch_size, options.max_length)
    batches = held_out_batches(
        tokenizer, evaluation_shards[0], masking, options.batch_size, options.max_length, options.nsp
    )
    facts = {"tokens": run.tokens, "minutes": round(run.seconds / 60, 1)}
    facts |= {"unigram_loss": unigram_loss(batches, shards), **scores}
    facts = {name: round(value, 4) for name, value in facts.items()}  # printed as it is stored
    mlm, unigram, minutes = facts["mlm_loss"], facts["unigram_loss"], facts["minutes"]
    print(f"{run.step:,} updates, {run.tokens:,} tokens in {minutes:.1f} minutes; the curve is {out}/curve.png")
    print(f"held-out text: masked-LM loss {mlm:.3f} nats, accuracy {facts['mlm_accuracy']:.3f}")
    print(f"the same tokens by their frequencies alone: {unigram:.3f} nats, {unigram - mlm:+.3f} from it")
    if options.nsp:
        print(f"next sentence: loss {facts['nsp_loss']:.3f}, accuracy {facts['nsp_accuracy']:.3f}")
    pd.DataFrame([facts]).to_csv(out / "pretraining.csv", index=False)
    return out / "model"


def unigram_loss(held_out, shards: Shards) -> float:
    """The loss on the masked tokens of held-out batches, in nats, of who knows only how frequent each token is."""
    counts = np.ones(shards.tokenizer.vocab_size)  # one each more, so that none has probability 0
    for i in range(len(shards)):
        counts += np.bincount(shards[i].tokens, minlength=len(counts))
    losses = -np.log(counts / counts.sum())
    masked = [batch.targets["mlm"][batch.weights["mlm"] > 0] for batch in held_out]
    return float(losses[np.concatenate(masked)].mean())


def random_start(model: Path, seed: int) -> Path:
    """A folder with the same network and vocabulary, whose weights are random."""
    from kbert import BertForPreTraining

    folder = model.parent / f"random-{seed}"
    BertForPreTraining(BertConfig.from_folder(model), seed=seed + 1).save_pretrained(folder)
    WordPieceTokenizer.from_pretrained(model).save(folder)
    return folder


def compared(model: Path, options: argparse.Namespace) -> pd.DataFrame:
    """Accuracy on SST-2 dev from the model and from random starts, for each seed."""
    from kbert import BertClassifier

    results = options.out / "results.csv"
    train, dev = datasets.load("sst2", "train"), datasets.load("sst2", "dev")
    n_rows = min(options.rows or len(train), len(train))
    for seed, is_pretrained in itertools.product(options.seeds, (True, False)):
        rows = train.sample(n_rows, random_state=seed)
        run = {"start": START[is_pretrained], "seed": seed, "rows": len(rows), "epochs": options.epochs}
        run["learning_rate"] = options.fine_tuning_rate
        if results.exists():
            done = pd.read_csv(results, converters={"learning_rate": float})
            if (done[list(run)] == pd.Series(run)).all(axis=1).any():
                continue
        start = time.perf_counter()
        weights = model if is_pretrained else random_start(model, seed)
        classifier = BertClassifier.paper(
            weights=weights,
            epochs=options.epochs,
            learning_rate=options.fine_tuning_rate,
            dropout=0.1,
            random_state=seed,
        )
        accuracy = classifier.fit(rows.text, rows.label).score(dev.text, dev.label)
        row = {**run, "accuracy": round(accuracy, 4), "seconds": round(time.perf_counter() - start)}
        row |= {"date": datetime.date.today().isoformat(), "kbert": version("kbert-learn"), "keras": version("keras")}
        pd.DataFrame([row]).to_csv(results, mode="a", header=not results.exists(), index=False)
        print(f"{row['start']}, seed {seed}: {accuracy:.4f}, {row['seconds']} s")
    runs = pd.read_csv(results)
    same = (runs.rows == n_rows) & (runs.epochs == options.epochs) & runs.seed.isin(options.seeds)
    runs = runs[same & np.isclose(runs.learning_rate, options.fine_tuning_rate)]
    return runs.groupby("start").accuracy.agg(["count", "mean", "std"]).round(4)


def main(argv: list[str] | None = None) -> None:
    """Pre-train, fine-tune and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200, help="of the first file; 0 for all but the last file")
    parser.add_argument("--text", type=Path, nargs="+", help="files instead of Wikipedia's; the last one is held out")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--minutes", type=float, default=1.0, help="time to pre-train")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--mask-rate", type=float, default=MASK_RATE)
    parser.add_argument(
        "--nsp", action=argparse.BooleanOptionalAction, default=True, help="learn the next sentence too"
    )
    text = "while pre-training: so short a run fits no text too closely; fine-tuning has 0.1"
    parser.add_argument("--dropout", type=float, default=0.0, help=text)
    parser.add_argument("--rows", type=int, default=2_000, help="fine-tune on so many rows of SST-2; 0 for all")
    parser.add_argument("--epochs", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--fine-tuning-rate", type=float, default=1e-4)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=Path("pretrain_example"))
    options = parser.parse_args(argv)
    if options.rows < 0:
        parser.error(f"--rows is {options.rows}: give 0 for all, or more")
    try:
        datasets.load("sst2", "dev")  # before all else, since an hour may lie between
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from None
    model = pretrained(options)
    rows = f"{options.rows:,}" if options.rows else "all"
    print(f"\nSST-2 dev accuracy, fine-tuned on {rows} rows\n{compared(model, options).to_string()}")
    print("BERT's published 93.5 (base) is of the test set, a model 25 times as large, and 3,300 million words.")


if __name__ == "__main__":
    main()
