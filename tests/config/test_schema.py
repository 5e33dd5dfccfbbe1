"""The file's description for editors and for the README: it follows the models."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from arena.common.errors import ConfigError
from arena.config.schema import BEGIN, END, json_schema, key_table, write_table

README = Path(__file__).parents[2] / "README.md"


def references(node):
    """Yield every reference in a schema."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else []):
        if key == "$ref":
            yield value
        yield from references(value)


def test_the_readme_shows_the_keys_as_they_are():
    text = README.read_text("utf-8")
    assert BEGIN in text, f"README.md lost the line {BEGIN}"
    assert END in text, f"README.md lost the line {END}"
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == key_table(), "renew it: arena schema --write README.md"


def test_every_reference_leads_somewhere():
    schema = json_schema()
    found = set(references(schema))
    assert found
    assert all(reference.removeprefix("#/$defs/") in schema["$defs"] for reference in found)


def test_editors_refuse_unknown_keys_in_every_section():
    schema = json_schema()
    assert all(section["additionalProperties"] is False for section in [schema, *schema["$defs"].values()])


def test_editors_know_the_settings_of_the_policy_that_is_used():
    schema = json_schema()
    cases = {
        case["if"]["properties"]["use"]["const"]: case["then"] for case in schema["$defs"]["PolicyConfig"]["allOf"]
    }
    assert cases["ppo"]["properties"]["settings"]["$ref"] == "#/$defs/PPOSettings"
    assert schema["$defs"]["PPOSettings"]["properties"]["learning_rate"]["exclusiveMinimum"] == 0


def test_editors_know_bounds_and_take_steps_with_underscores():
    properties = json_schema()["properties"]
    whole, text = properties["steps"]["anyOf"]
    assert whole == {"type": "integer", "minimum": 1}
    assert re.match(text["pattern"], "400_000")
    assert not re.match(text["pattern"], "many")


def test_the_table_explains_every_key():
    table = key_table()
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert len(cells) == 4, row
        assert cells[3].strip(), f"{cells[0]} has no description"
    keys = [row.split("`")[1] for row in rows]
    expected = ("name", "env.wrappers[].use", "policies.<name>.use", "matches[].env", "rounds[].copy", "gamma")
    assert set(expected) <= set(keys)
    assert "| `learning_rate` | number | `0.0003` |" in table
    assert "| `steps` | whole number | required |" in table


def test_writing_changes_only_what_is_between_the_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_table(page)
    once = page.read_text()
    assert once == f"above\n{BEGIN}\n\n{key_table()}\n\n{END}\nbelow\n"
    write_table(page)
    assert page.read_text() == once


def test_a_page_without_markers_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ConfigError, match="expected the lines"):
        write_table(page)
    assert page.read_text() == "nothing"


def test_the_command_prints_the_schema():
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", "schema"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == json_schema()
