"""``python -m arena.launch``: what the console script ``arena`` does, too."""

import signal
import sys

from arena.launch import main

if __name__ == "__main__":
    # A reader that closes early (`| head`) ends the program quietly, as it does other tools.
    if hasattr(signal, "SIGPIPE") and "--dry-run" in sys.argv:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
