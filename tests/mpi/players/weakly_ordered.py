"""Starts the arena as if processors saw each other's writes in any order, and a fence were needed with each message."""

import sys

from arena.comms import transport
from arena.launch import main

transport.ORDERED = False
sys.exit(main())
