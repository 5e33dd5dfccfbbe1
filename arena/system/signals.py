"""Signals that end a program in order."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM, and SIGHUP, which is sent when the terminal closes, unless it is ignored, as by nohup.

    A closing terminal and its shell each send SIGHUP: only the first one counts.
    """
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)
