"""What reading a field's own text is worth: pre-training that goes on with IMDB's reviews, and IMDB's labels after it.

    KBERT_DATA=... python benchmarks/continued_pretraining.py WEIGHTS [--minutes 10] [--seed 0 1 2]

The masked-LM loss is on 500 reviews that are in no other part, under fixed masks, before and after. Then WEIGHTS and
the weights that went on from it are fine-tuned on 5,000 reviews and scored on 5,000 others, for each seed, cut at 128
tokens; epochs and rate suit a network as small as bert-tiny. No review that is scored is pre-trained on. Parts are
drawn from IMDB's train part, without duplicates; the seeds are those of fine-tuning. The results replace those of
benchmarks/results/continued_pretraining.csv, each as soon as it is there.
"""

import argparse
import os
import tempfile
from pathlib import Path

import pandas as pd
from results_file import ResultsFile, made_with

RESULTS = Path(__file__).parent / "results" / "continued_pretraining.csv"
ROWS, HELD_OUT = 5000, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="a folder that was pre-trained, masked-LM head included")
    parser.add_argument("--minutes", type=float, default=10, help="of further pre-training")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=8, help="of fine-tuning")
    parser.add_argument("--fine-tuning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    from kbert import BertClassifier, BertPretrainer

    reviews = pd.read_csv(Path(os.environ["KBERT_DATA"]) / "imdb" / "train.csv.gz").drop_duplicates("text")
    reviews = reviews.sample(frac=1, random_state=0)
    train, test = reviews[:ROWS], reviews[ROWS : 2 * ROWS]
    held_out, others = reviews[2 * ROWS :][:HELD_OUT], reviews[2 * ROWS + HELD_OUT :]
    before = BertPretrainer(weights=options.weights)
    after = BertPretrainer(
        weights=options.weights,
        max_seconds=60 * options.minutes,
        learning_rate=options.learning_rate,
        random_state=0,
        verbose=1,
    ).fit(pd.concat([train.text, others.text]))
    RESULTS.unlink(missing_ok=True)
    results = ResultsFile(RESULTS)
    with tempfile.TemporaryDirectory() as folder:
        after.save(folder)
        for name, pretrainer, weights in (("before", before, options.weights), ("after", after, folder)):
            loss = -pretrainer.score(held_out.text)
            print(f"{name}: masked-LM loss on held-out reviews {loss:.3f} nats", flush=True)
            for seed in options.seed:
                recipe = {"epochs": options.epochs, "learning_rate": options.fine_tuning_rate}
                classifier = BertClassifier.paper(weights=weights, **recipe, random_state=seed).fit(
                    train.text, train.label
                )
                accuracy = round(classifier.score(test.text, test.label), 4)
                print(f"{name}, seed {seed}: accuracy {accuracy:.4f}", flush=True)
                went_on = (
                    {"minutes": options.minutes, "pretraining_rate": options.learning_rate} if name == "after" else {}
                )
                results.append({
                    "weights": name, "mlm_loss": round(loss, 4), **recipe, "seed": seed, "accuracy": accuracy,
                    **went_on, "from": options.weights.name, **made_with(),
                })  # fmt: skip
    print(results.read().groupby("weights", sort=False).accuracy.agg(["count", "mean", "std"]).round(4))


if __name__ == "__main__":
    main()
