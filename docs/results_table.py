"""A directive of Sphinx: some columns of a CSV of benchmarks/results as a table, and the whole file to download.

    ```{results} glue.csv
    :columns: task, seed, score, fit_s = seconds
    ```

A column may be given another title, after an equals sign. There are at most seven, so that the table fits the page.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.directives.tables import CSVTable
from sphinx import addnodes
from sphinx.application import Sphinx

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
MOST_COLUMNS = 7


def selected(text: str, columns: str, name: str = "the file") -> str:
    """Return the CSV of these columns of a CSV, under their titles.

    Parameters
    ----------
    text : str
        A CSV with a header.
    columns : str
        Names of columns with a comma between them, in double quotes where a name has one, each with or without
        `` = title``.
    name : str
        What errors call the file.

    Raises
    ------
    ValueError
        If a column is not there, or there are more than seven.
    """
    (given,) = csv.reader([columns], skipinitialspace=True)
    chosen = [
        tuple(part.strip() for part in column.partition(" = ")[::2]) for column in given
    ]
    header, *rows = csv.reader(io.StringIO(text))
    if missing := [column for column, _ in chosen if column not in header]:
        raise ValueError(
            f"{name} has no column {', '.join(missing)}. It has: {', '.join(header)}."
        )
    if len(chosen) > MOST_COLUMNS:
        raise ValueError(
            f"{len(chosen)} columns of {name}: a page has room for {MOST_COLUMNS}."
        )
    places = [header.index(column) for column, _ in chosen]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(title or column for column, title in chosen)
    # A mean and its deviation stay on one line.
    writer.writerows(
        [row[place].replace(" ± ", "\u00a0±\u00a0") for place in places] for row in rows
    )
    return out.getvalue()


class ResultsTable(CSVTable):
    """The directive."""

    required_arguments = 1
    option_spec = {
        "columns": directives.unchanged_required,
        "class": directives.class_option,
    }

    def run(self):
        self.path = RESULTS / self.arguments.pop()
        self.options["header-rows"] = 1
        environment = self.state.document.settings.env
        environment.note_dependency(str(self.path))
        try:
            self.text = selected(
                self.path.read_text(encoding="utf-8"),
                self.options.pop("columns"),
                self.path.name,
            )
        except (OSError, ValueError) as error:
            raise self.error(str(error)) from None
        target = Path("/") / ".." / "benchmarks" / "results" / self.path.name
        link = addnodes.download_reference(
            "", "", refdoc=environment.docname, reftarget=target.as_posix()
        )
        link += nodes.literal("", self.path.name, classes=["download"])
        return [
            *super().run(),
            nodes.paragraph("", "All columns: ", link, classes=["small"]),
        ]

    def get_csv_data(self):
        return self.text.splitlines(), str(self.path)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("results", ResultsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
