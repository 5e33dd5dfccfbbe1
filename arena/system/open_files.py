"""The limit on open files of a process: sockets, pipes and shared memory count."""

import resource


def make_room(needed: int) -> int | None:
    """Raise the limit of this process, which its children inherit, to ``needed`` open files.

    Returns:
      The system's limit if that is lower; None if the limit suffices.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    if hard != resource.RLIM_INFINITY and hard < needed:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return None
