"""``python -m arena.launch``, equal to the console script ``arena``."""

import signal
import sys

from arena.launch import main

if __name__ == "__main__":
    # A reader that closes early (`| head`) ends the program quietly, as in other tools.
    if hasattr(signal, "SIGPIPE") and "--dry-run" in sys.argv:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
