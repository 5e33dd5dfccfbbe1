"""The exceptions that carry meaning through the arena."""


class ConfigError(Exception):
    """A configuration that cannot be run. Shown without a traceback; the exit code is 2.

    The message states what was expected, what was found and what to do.
    """


class ContractError(Exception):
    """An environment breaks the contract of its library in each call.

    The message states what the method must return or accept, and what it does instead.
    """


class GivenUpError(RuntimeError):
    """A permanent failure; the message describes it in full, and a traceback of the arena would add nothing."""


class RankLostError(RuntimeError):
    """Another rank has died; every collective operation with it has ended."""


class MatchOver(Exception):
    """Raised by a proxy inside a policy's ``run`` when its match has ended; the worker catches it."""


class BudgetSpentError(MatchOver):
    """The match is over for a player that steps beyond its budget; raised in all workers of the player."""


class PolicyGoesOnError(BaseException):
    """A custom-loop policy continues to step after ``MatchOver``.

    Not an ``Exception``: a policy that ignores those would ignore this one, and never end.
    """


class MatchGivenUpError(MatchOver):
    """The match has ended because its environment has failed too often; the other matches of the run continue."""


GO_ON = "the last checkpoint stands: continue with --resume"
