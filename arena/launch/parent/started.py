"""Start of the parent process of a machine by the launcher."""

import contextlib
import secrets
from collections.abc import Iterator

from arena.launch.parent.client import listen, machine, start_parent


@contextlib.contextmanager
def parent_process() -> Iterator[str]:
    """Start a parent process, and end it after the block; yield the address of its socket.

    The socket listens before the parent has imported its modules: early clients wait in its queue.
    """
    address = f"@arena-{secrets.token_hex(16)}-{machine()}"
    with listen(address) as listener:
        process = start_parent(listener)
    try:
        yield address
    finally:
        process.kill()
        process.wait()
