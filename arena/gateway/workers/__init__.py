"""Several processes behind one port: each game belongs to one of them, whichever one a request comes to."""

__all__: list[str] = []
