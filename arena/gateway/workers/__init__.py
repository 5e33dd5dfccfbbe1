"""Several processes behind one port: each game belongs to one of them, whichever one receives a request."""

__all__: list[str] = []
