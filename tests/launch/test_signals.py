"""Signals that come when a run is over."""

import subprocess
import sys
import textwrap

RUN = """
    import os, signal
    from arena.root.process import Root
    from arena.launch.ranks.rank import ignore_signals

    class Late:
        def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGUSR1):
            kill(me, number)

    root = Root.__new__(Root)
    root.state = type("State", (), {"progress": type("Progress", (), {"stopping": False})()})()
    root.listen_to_signals()
    ignore_signals()
    late = Late()  # goes when Python takes its modules down, after it has put signals back to their defaults
"""


def test_a_signal_after_the_last_line_of_the_root_is_too_late_to_kill_it():
    subprocess.run([sys.executable, "-c", textwrap.dedent(RUN)], timeout=60, check=True)
