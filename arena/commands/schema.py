"""``arena schema``: the configuration file described, for editors and for people."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from arena.config.schema import json_schema, key_table, write_table


def main(argv: Sequence[str]) -> int:
    """Run ``arena schema``; return the exit code.

    Raises:
      ConfigError: the page of ``--write`` has no markers, or cannot be read.
    """
    parser = argparse.ArgumentParser("arena schema", description="Print the JSON Schema of the configuration file.")
    parser.add_argument("--table", action="store_true", help="print the Markdown table of keys instead")
    parser.add_argument("--write", type=Path, metavar="README.md", help="put the table between the markers of a page")
    arguments = parser.parse_args(argv)
    if arguments.write is not None:
        write_table(arguments.write)
    else:
        print(key_table() if arguments.table else json.dumps(json_schema(), indent=2))
    return 0
