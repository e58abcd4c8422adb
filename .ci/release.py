"""Check that a tag may be released, and print its notes: ``python .ci/release.py TAG OWNER/NAME``."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version_of(root: Path) -> str:
    """The version, which kbert/__init__.py alone says."""
    return re.search(r'^__version__ = "(.+)"$', (root / "kbert" / "__init__.py").read_text("utf-8"), re.MULTILINE)[1]


def notes_of(changelog: str, version: str) -> str | None:
    """What the changelog says of a version that has a date; None where it has no such section."""
    pattern = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$(.*?)(?=^## |^\[|\Z)"
    section = re.search(pattern, changelog, re.MULTILINE | re.DOTALL)
    return section and section[1].strip()


def faults(root: Path, tag: str, repository: str) -> list[str]:
    """What stands against releasing a tag of a repository on GitHub."""
    version, found = version_of(root), []
    if tag != f"v{version}":
        found.append(f"The tag is {tag}, and kbert/__init__.py has version {version}.")
    if not notes_of((root / "CHANGELOG.md").read_text("utf-8"), version):
        found.append(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD', or an empty one.")
    home = f"https://github.com/{repository}"
    urls = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    found += [
        f"pyproject.toml has the address {url} ({name}), and this repository is {home}."
        for name, url in urls.items()
        if url.startswith("https://github.com/") and url != home and not url.startswith(f"{home}/")
    ]
    return found


def main() -> int:
    found = faults(ROOT, *sys.argv[1:])
    print("\n".join(found), file=sys.stderr)
    if not found:
        print(notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), version_of(ROOT)))
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
