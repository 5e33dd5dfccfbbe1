"""A library of the page that was changed by hand would be a fork that nobody knows of."""

import hashlib
import re

from arena.page.app import STATIC


def test_the_libraries_are_the_released_files_that_the_readme_names():
    vendor = STATIC / "vendor"
    rows = re.findall(r"^\| (\S+) \| .+ \| `([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE)
    assert {name: hashlib.sha256((vendor / name).read_bytes()).hexdigest() for name, _ in rows} == dict(rows)
    others = {"README.md", *(path.name for path in vendor.glob("*.LICENSE"))}
    assert {path.name for path in vendor.iterdir()} == {name for name, _ in rows} | others
