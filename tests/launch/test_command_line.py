"""The help of the ``arena`` command names every command: a user finds no other one."""

import re

import pytest

from arena.launch import main
from arena.launch.command_line import OTHERS
from arena.launch.commands import COMMANDS


def test_the_help_names_every_command_and_an_empty_command_line_shows_it(capsys):
    assert set(re.findall(r"^  arena (\S+)", OTHERS, re.MULTILINE)) == set(COMMANDS)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert OTHERS.splitlines()[-1] in capsys.readouterr().err
