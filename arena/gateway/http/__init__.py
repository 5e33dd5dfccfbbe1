"""HTTP at a gateway: the server and its limits, requests and responses, access, and the ASGI application.

Not here: what the requests are for (games, models, actors).
"""
