"""Switches that are read at each call: set them while the program runs."""

g_stop_torch_print = False  # True: calls go to the log only
g_torch_log_path = "performance.log"  # where calls and print() are written
