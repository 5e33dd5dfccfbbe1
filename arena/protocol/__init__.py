"""What crosses a process: messages, byte layouts, seats, line-ups.

Here belong the types and layouts that both ends must agree on; all of it is pure.
Not here: how they are carried (comms), and what either end does with them.
"""
