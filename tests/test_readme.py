"""The README: its links work from a package index too, and its figures are those of the results file."""

import re
import tomllib
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RAW = HOME.replace("https://github.com/", "https://raw.githubusercontent.com/")
PEERS = pd.read_csv(ROOT / "benchmarks" / "results" / "peers_sst2_table.csv", index_col="contestant")
RESULTS = pd.read_csv(ROOT / "benchmarks" / "results" / "readme.csv")


def test_links_and_pictures_are_absolute_and_lead_to_files():
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", README)
    assert len(links) >= 8 and any(mark for mark, _ in links)
    for mark, address in links:
        place = f"{RAW}/main/" if mark else f"{HOME}/blob/main/"
        address = f"{place}README.md{address}" if address.startswith("#") else address
        assert address.startswith(place), address
        path, _, anchor = address.removeprefix(place).partition("#")
        text = (ROOT / path).read_bytes()
        titles = re.findall(r"^#+ (.*)$", text.decode(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [title.lower().replace(" ", "-") for title in titles], address


def test_figures_are_those_of_the_results():
    text = " ".join(README.split())
    kbert = RESULTS[RESULTS.method == "BertClassifier"]
    assert sorted(kbert["split"]) == list(range(5)) and set(kbert.threads) == {1} and set(kbert.backend) == {"torch"}
    assert f"fits in {kbert.fit_cpu_s.median():.0f} seconds" in text
    assert f"messages in {kbert.predict_cpu_s.median():.2f} seconds" in text
    assert set(RESULTS.date) <= set(re.findall(r"\d{4}-\d\d-\d\d", text))


def test_the_speed_is_that_of_the_results():
    speed = PEERS.loc["Trainer in bfloat16", ["fit, kbert torch", "predict, kbert torch"]]
    fits, predicts = (f"{ratio:.2f}" for ratio in speed)
    assert f"fits {fits} times as fast and predicts {predicts} times as fast" in " ".join(README.split())
