"""If these fail, a hundred ranks that print the same line fill the terminal with it."""

from arena.protocol.messages import Printed
from arena.root.printed import PrintedLines


def test_equal_lines_of_ranks_are_shown_once_and_counted():
    lines: list[str] = []
    printed = PrintedLines(lambda level, text: lines.append(text))
    for rank in (1, 2, 3):
        printed.add(Printed(rank, "ready", f"{rank}.out"), {rank: f"part {rank}"})
        printed.add(Printed(rank, "", f"{rank}.out"), {})
    printed.add(Printed(2, "own", "2.out"), {2: "part 2"})
    printed.conclude()
    assert lines == [
        "(rank 1, part 1) ready",
        "(rank 1) what else it prints is in 1.out",
        "(rank 2, part 2) own",
        "(2 more ranks) printed the same: ready",
        "(2 more ranks) have printed more, in files of their own",
    ]
