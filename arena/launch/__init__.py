"""The command line and the start of a run. This module imports nothing heavy: each rank of a job passes through it."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 for done or stopped in order, 2 for a user error, else 1.

    A rank that is this process's program (``argv`` is None) becomes a fork of its machine's parent process if it can;
    see ``arena.launch.parent``.
    """
    if argv is not None:
        from arena.launch.command_line import main as run

        return run(argv)
    from arena.system.surroundings import settle

    settle()
    from arena.launch.parent.choice import become_client

    become_client(sys.argv[1:])
    from arena.launch.command_line import main as run
    from arena.launch.ending import end_despite_threads, exit_code

    code = 1
    try:
        code = run()
    except SystemExit as error:
        code = exit_code(error.code)
        raise SystemExit(code) from None
    finally:
        end_despite_threads(code)
    return code
