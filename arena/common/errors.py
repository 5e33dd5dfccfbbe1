"""The exceptions that carry meaning through the arena."""


class ConfigError(Exception):
    """What the user asked for cannot be done. Shown as it is, without a traceback; the exit code is 2.

    The message says what was expected, what was found and what to do.
    """


class ContractError(Exception):
    """An environment breaks the contract of its library, and does so in each call.

    The message says what the method must return or accept, and what it does instead.
    """


class GivenUpError(RuntimeError):
    """Something failed for good, and the message says all of it: no traceback of ours adds anything."""


class RankLostError(RuntimeError):
    """Another rank has died: what this one was doing with it, and with all the others, has ended."""


class MatchOver(Exception):
    """Raised by a proxy inside a policy's ``run`` when the match it sits in has ended; the worker catches it."""


class PolicyGoesOnError(BaseException):
    """A policy with a loop of its own steps on and on after ``MatchOver``.

    No ``Exception``: a policy that takes no notice of those would take none of this one, and never end.
    """


class MatchGivenUpError(MatchOver):
    """The match has ended since its environment has failed too often; the other matches of the run go on."""


GO_ON = "the last checkpoint stands: continue with --resume"
