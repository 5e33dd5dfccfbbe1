"""Types and layouts of what crosses a process: messages, byte layouts, seats, line-ups.

Here belongs what both ends must agree on; all of it is pure.
Not here: how it is carried (comms), and what either end does with it.
"""
