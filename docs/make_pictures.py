"""Make the pictures of docs/howto: each display, and a report, in light, in dark, and on a phone.

    python docs/make_pictures.py           # if the displays have changed since the pictures were made
    python docs/make_pictures.py --again   # in any case

`make docs` calls it. The pictures are committed, so that a machine without Chromium builds the same pages: there it
says so, and keeps those that are there. Small models are fitted for them, which takes a minute or two.
"""

import argparse
import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
# What the pictures were made from: a digest of the code below and of the displays.
MADE_FROM = PICTURES / "made_from.txt"
MOST_BYTES = 60_000

# Width in pixels, and the colour scheme.
LOOKS = {"light": (720, "light"), "dark": (720, "dark"), "phone": (400, "light")}
_GROUND = "#1b1b1b"  # that of the displays in HTML
STYLES: dict[str, Any] = {
    "light": "default",
    "dark": [
        "dark_background",
        {f"{what}.facecolor": _GROUND for what in ("figure", "axes", "savefig")},
    ],
}

PEOPLE = [
    "Ada Lovelace",
    "Alan Turing",
    "Grace Hopper",
    "Emmy Noether",
    "Kurt Gödel",
    "Mary Shelley",
]
CITIES = ["London", "Vienna", "Paris", "Dublin", "Rome", "Lisbon", "Boston", "Madrid"]
WORK = ["a baker", "an engineer", "a teacher", "a nurse", "a gardener", "a painter"]


def digest() -> str:
    """A name for the code that the pictures come from."""
    found = hashlib.sha256()
    for path in [
        Path(__file__),
        *sorted((DOCS.parent / "kbert").glob("plots/*.py")),
        *sorted((DOCS.parent / "kbert").glob("reports/*.py")),
    ]:
        found.update(path.read_bytes())
    return found.hexdigest()


def missing() -> str | None:
    """What this machine lacks to make the pictures, as a command; None where it has all."""
    for module in ("playwright", "matplotlib", "PIL"):
        if find_spec(module) is None:
            return "pip install playwright matplotlib"
    return None if chromium() else "apt-get install chromium"


def chromium() -> str | None:
    """The browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


# --- What is fitted


def people(n: int) -> list[tuple[str, str, str]]:
    """So many different people with where they live and what they are."""
    rows = list(itertools.product(PEOPLE, CITIES, WORK))
    return rows[:: len(rows) // n][:n]


def messages() -> Any:
    """Customer messages with what they are about."""
    import pandas as pd

    return pd.read_csv(DOCS.parent / "examples" / "data" / "support_messages.csv")


def sorter() -> Any:
    """A classifier of messages."""
    from kbert import BertClassifier

    train, held_out = messages()[:320], messages()[320:420]
    classifier = BertClassifier("minilm-l6", random_state=0)
    return classifier.fit(
        train.message, train.label, eval_set=(held_out.message, held_out.label)
    )


def name_finder() -> Any:
    """A tagger of people and cities, in sentences of one form."""
    from kbert import BertTagger

    texts, spans = [], []
    for name, city, work in people(96):
        text = f"{name} lives in {city} and works as {work}."
        texts.append(text)
        spans.append(
            [
                (0, len(name), "PERSON"),
                (text.index(city), text.index(city) + len(city), "CITY"),
            ]
        )
    return BertTagger("minilm-l6", random_state=0).fit(texts, spans)


def answerer() -> Any:
    """A question answerer of where people live and what they work as, in sentences of two forms."""
    import pandas as pd
    from kbert import BertQA

    rows = []
    for i, (name, city, work) in enumerate(people(96)):
        context = (
            f"{name} lives in {city} and works as {work}."
            if i % 2
            else f"{name}, {work}, has a house in {city}."
        )
        for question, answer in (
            (f"Where does {name} live?", city),
            (f"What does {name} work as?", work),
        ):
            rows.append((question, context, answer, context.index(answer)))
    frame = pd.DataFrame(
        rows, columns=["question", "context", "answer", "answer_start"]
    )
    return BertQA("minilm-l6", random_state=0).fit(frame, frame)


def curves(classifier: Any) -> dict[str, Any]:
    """The displays that matplotlib draws."""
    from kbert import BertClassifier, BertVectorizer
    from kbert.plots import LayerDisplay, LengthDisplay, TrainingDisplay

    frame, vectorizer = messages(), BertVectorizer("minilm-l6", max_length=64)
    cutting = BertClassifier("minilm-l6", max_length=40, long_text="truncate")
    return {
        "training": TrainingDisplay.from_estimator(classifier),
        "lengths": LengthDisplay.from_estimator(cutting, frame.message),
        "layers": LayerDisplay.from_estimator(
            vectorizer, frame.message[:320], frame.label[:320]
        ),
    }


def pages(classifier: Any) -> dict[str, Any]:
    """The displays in HTML, of texts that no model was fitted to."""
    from kbert.plots import AnswerDisplay, AttributionDisplay, EntityDisplay

    frame = messages()
    texts = [
        "Before she moved to Lisbon, Mary Shelley was a gardener in Dublin.",
        "Alan Turing works as a teacher, and met Emmy Noether in Rome.",
    ]
    asked = [
        (
            "Where does Kurt Gödel live?",
            "Kurt Gödel, who works as a baker, lives in Rome.",
        )
    ]
    return {
        "attributions": AttributionDisplay.from_estimator(
            classifier, frame.message[420:423]
        ),
        "entities": EntityDisplay.from_estimator(name_finder(), texts),
        "answers": AnswerDisplay.from_estimator(answerer(), asked, n_best=3),
        "report": classifier.report(
            frame.message[420:],
            frame.label[420:],
            train=(frame.message[:320], frame.label[:320]),
            max_rows=2,
        ),
    }


# --- What is drawn


def draw(displays: dict[str, Any], folder: Path) -> None:
    """Save what matplotlib draws."""
    import matplotlib.pyplot as plt

    for (name, display), (look, (width, scheme)) in itertools.product(
        displays.items(), LOOKS.items()
    ):
        with plt.style.context(STYLES[scheme]):
            _, ax = plt.subplots(figsize=(width / 100, 3.6), layout="constrained")
            display.plot(ax=ax)
            if look == "phone":
                ax.set_title(ax.get_title(), fontsize="medium")
            ax.figure.savefig(folder / f"{name}-{look}.png", dpi=100)
            plt.close("all")


def photograph(displays: dict[str, Any], folder: Path) -> None:
    """Save what a browser shows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started, tempfile.TemporaryDirectory() as pages:
        browser = started.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        for (name, display), (look, (width, scheme)) in itertools.product(
            displays.items(), LOOKS.items()
        ):
            page = browser.new_page(
                color_scheme=scheme, viewport={"width": width, "height": 80}
            )
            display.save(Path(pages) / "page.html")
            page.goto((Path(pages) / "page.html").as_uri())
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            page.close()
        browser.close()


def shrink(folder: Path) -> Iterator[Path]:
    """Give the pictures a palette, which is all that lines and letters need."""
    from PIL import Image

    for path in sorted(folder.glob("*.png")):
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(128).save(path, optimize=True)
        if path.stat().st_size > MOST_BYTES:
            raise SystemExit(
                f"{path.name} has {path.stat().st_size} bytes, and {MOST_BYTES} are allowed."
            )
        yield path


def main(argv: list[str] | None = None) -> None:
    """Make the pictures, where they are to be made and can be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="make them though the displays have not changed",
    )
    options = parser.parse_args(argv)
    if (
        not options.again
        and MADE_FROM.exists()
        and MADE_FROM.read_text(encoding="utf-8").strip() == digest()
    ):
        return
    if (command := missing()) is not None:
        print(
            f"docs/pictures: the displays have changed, and their pictures were not made again. For that: {command}"
        )
        return
    import matplotlib

    matplotlib.use("Agg")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        classifier = sorter()
        draw(curves(classifier), folder)
        photograph(pages(classifier), folder)
        pictures = list(shrink(folder))
        PICTURES.mkdir(exist_ok=True)
        for path in pictures:
            shutil.copy(path, PICTURES / path.name)
    MADE_FROM.write_text(f"{digest()}\n", encoding="utf-8")
    print(f"docs/pictures: made {len(pictures)} pictures")


if __name__ == "__main__":
    main()
