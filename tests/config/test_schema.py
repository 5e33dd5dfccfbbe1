"""The file's description for editors and for people: it follows the models."""

import json
import re
import subprocess
import sys

from arena.config.schema import json_schema, key_table


def references(node):
    """Yield every reference in a schema."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else []):
        if key == "$ref":
            yield value
        yield from references(value)


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


def test_every_key_has_an_anchor_of_its_own():
    anchors = re.findall(r"\{ #(\S+) \}", key_table(anchors=True))
    assert len(anchors) == len(set(anchors)), [each for each in anchors if anchors.count(each) > 1]
    assert {"env.num_envs", "policies.name.use", "matches.seats", "ppo.gamma", "dqn.gamma"} <= set(anchors)


def test_the_command_prints_the_schema():
    done = subprocess.run(
        [sys.executable, "-m", "arena.launch", "schema"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == json_schema()
