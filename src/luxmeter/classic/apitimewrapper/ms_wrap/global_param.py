"""Switches that are read at each call: set them while the program runs."""

g_stop_ms_print = False  # True: calls go to the log only
