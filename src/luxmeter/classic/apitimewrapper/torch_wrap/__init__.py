"""The torch side: hook_net puts the timing in and takes it out, global_param holds the switches."""
