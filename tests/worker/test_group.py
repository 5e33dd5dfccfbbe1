"""What a policy with a loop of its own logs."""

import numpy as np
import pytest

from arena.comms import SingleMember
from arena.worker.group import Group


def test_numbers_come_by_keyword_or_in_a_mapping():
    logged: list[dict[str, float]] = []
    group = Group(SingleMember(0, 1), logged.append)
    group.log(loss=np.float32(0.5), steps=3)
    group.log({"loss/policy": np.array(2.0), "values": 1}, entropy=0.1)
    assert logged == [{"loss": 0.5, "steps": 3.0}, {"loss/policy": 2.0, "values": 1.0, "entropy": 0.1}]
    for wrong, message in (
        ({"loss": np.zeros(3)}, r"group.log: expected a number for 'loss', found ndarray of shape \(3,\)"),
        ({"note": "text"}, "expected a number for 'note', found str"),
        ({"nothing": None}, "expected a number for 'nothing', found NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            group.log(wrong)
