"""Unusual texts, drawn at random, and what every estimator has to say of them."""

import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "estimators"), str(TESTS / "text")]

from save_examples import ESTIMATORS  # noqa: E402
from unusual_texts import NASTY  # noqa: E402

SAVED = TESTS / "estimators" / "saved"
SURROGATES = range(0xD800, 0xE000)


def _letters(rng, first, last, n):
    codes = (rng.randint(first, last) for _ in range(n))
    return "".join(chr(code) for code in codes if code not in SURROGATES)


def text(rng):
    """One text of one of many kinds; never a lone surrogate."""
    n = rng.choice((1, 3, 20, 300))
    plane = rng.randrange(17) << 16
    words = "the red table is [MASK] [SEP] ##a".split()
    kinds = (
        lambda: _letters(rng, plane, plane + 0xFFFF, n),
        lambda: _letters(rng, 0, 0x2FF, n),
        lambda: _letters(rng, 0, 0x1F, n),  # control characters
        lambda: _letters(rng, 0x590, 0x6FF, n) + "\u202e\u2066",  # right to left
        lambda: "".join(rng.choice("\u200b\u200c\u200d\u2060\ufeff\u00ad a") for _ in range(n)),  # zero width
        lambda: "e" + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(n * 10)),  # combining marks
        lambda: (
            rng.choice(("a", "\u4e2d", "\U0001f600", "e\u0301", "\x00", ".", "##", "\u0e01"))
            * rng.choice((1, 99, 101, 5_000, 100_000))
        ),
        lambda: " ".join(rng.choice(words) for _ in range(n)),
        lambda: rng.choice(("", " ", "\n\t", "\u3000", "\u2028")),
        lambda: rng.choice(NASTY),
    )
    return "".join(rng.choice(kinds)() for _ in range(rng.choice((1, 1, 2))))


def draw(folder, rng, marker):
    """Write some texts; in one of eight cases with a lone surrogate, which is refused."""
    texts = [text(rng) for _ in range(8)]
    if rng.random() < 1 / 8:
        i = rng.randrange(8)
        texts[i] = f"\ud83d{texts[i]}"
    (folder / "texts.json").write_text(json.dumps(texts))
    return f"{sum(map(len, texts)):,} characters"


@cache
def fitted():
    """The saved estimators by the names of their folders."""
    classes = {estimator.__name__: estimator for estimator in ESTIMATORS}
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(SAVED.glob("*/kbert.json")):
            folder = shutil.copytree(path.parent, Path(scratch) / path.parent.name)
            kind = json.loads(path.read_text(encoding="utf-8"))["estimator"]
            found[folder.name] = classes[kind].load(folder)
    return found


def predicted(name, estimator, texts):
    """An array for each row."""
    match name:
        case "tagger":
            return list(estimator.predict_proba([text.split(" ") for text in texts]))
        case "qa":
            answers = estimator.answers([("red table", text) for text in texts], 1)
            for row, answer, start, end in zip(
                answers["row"], answers["answer"], answers["start"], answers["end"], strict=True
            ):
                assert answer == ("" if start < 0 else texts[row][start:end]), "an answer that is no slice of the text"
            return [answers["probability"][answers["row"] == i].to_numpy() for i in range(len(texts))]
        case "choice":
            return list(estimator.predict_proba([(text, ["red", f"a {text}"]) for text in texts]))
        case "vectorizer":
            return list(estimator.transform(texts))
        case "regressor":
            return list(estimator.predict(texts))
        case "pretrainer":
            found = [estimator.fill_mask(f"{text[:8].replace('[MASK]', '')} [MASK]", 3) for text in texts]
            return [frame["score"].to_numpy() for frame in found]
        case _:
            return list(estimator.predict_proba(texts))


def check(folder):
    """One result a row, of finite numbers, the same alone and in a batch."""
    texts = json.loads((folder / "texts.json").read_text())
    for name, estimator in fitted().items():
        if any("\ud83d" in text for text in texts):
            assert _refusal(name, estimator, texts).count("surrogate"), f"{name}: takes a lone surrogate"
            continue
        together = predicted(name, estimator, texts)
        assert len(together) == len(texts), f"{name}: {len(together)} rows of {len(texts)}"
        for i in range(0, len(texts), 3):
            assert np.isfinite(together[i]).all(), f"{name}: row {i} is not finite"
            alone = predicted(name, estimator, [texts[i]])[0]
            np.testing.assert_allclose(alone, together[i], rtol=1e-3, atol=1e-4, err_msg=f"{name}: row {i} alone")


def _refusal(name, estimator, texts):
    """The message of the error; "" where there is none."""
    try:
        predicted(name, estimator, texts)
    except ValueError as error:
        return str(error)
    return ""
