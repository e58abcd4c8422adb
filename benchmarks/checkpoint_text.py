"""What the digest of the text costs that a pre-training's first checkpoint stores: seconds a gigabyte of text.

KBERT_DATA=... python benchmarks/checkpoint_text.py [--gigabytes 1]

The paragraphs of wiki_en, as often as it takes, become token shards in a temporary folder.
"""

import argparse
import gzip
import lzma
import os
import tempfile
import time
from pathlib import Path

from kbert.pretraining import Corpus, Shards, write_shards
from kbert.pretraining.checkpoints import digest_of_text
from kbert.text import WordPieceTokenizer


def main():
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    n_bytes = int(parser.parse_args().gigabytes * 1e9)
    data = Path(os.environ["KBERT_DATA"]) / "wiki_en"
    paths = sorted(path for path in data.iterdir() if path.suffix in (".gz", ".xz"))
    text = b"\n".join({".gz": gzip, ".xz": lzma}[path.suffix].open(path).read() for path in paths)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in range(-(-n_bytes // len(text))):
            (folder / f"{part:03d}.txt").write_bytes(text[: n_bytes - part * len(text)])
        tokenizer = WordPieceTokenizer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
        write_shards(Corpus(folder, split="lines", errors="replace"), tokenizer, folder / "shards")
        shards = Shards(folder / "shards")
        size = sum(path.stat().st_size for path in (folder / "shards").glob("*.npy"))
        n_tokens = shards.manifest["tokens"]
        print(f"{n_bytes / 1e9:.2f} GB of text: {n_tokens:,} tokens in {len(shards)} shards of {size / 1e9:.2f} GB")
        for _ in range(3):
            began = time.perf_counter()
            digest_of_text(shards)
            print(f"digest of all tokens: {time.perf_counter() - began:.3f} s")


if __name__ == "__main__":
    main()
