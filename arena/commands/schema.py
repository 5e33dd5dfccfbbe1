"""``arena schema``: descriptions of the configuration file, for editors and for people."""

import argparse
import json
from collections.abc import Sequence

from arena.config.schema import json_schema, key_table


def main(argv: Sequence[str]) -> int:
    """Run ``arena schema``; return the exit code."""
    parser = argparse.ArgumentParser("arena schema", description="Print the JSON Schema of the configuration file.")
    parser.add_argument("--table", action="store_true", help="print Markdown tables of all keys instead")
    arguments = parser.parse_args(argv)
    print(key_table() if arguments.table else json.dumps(json_schema(), indent=2))
    return 0
