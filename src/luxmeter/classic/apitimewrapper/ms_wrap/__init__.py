"""The MindSpore side: hook_net puts the timing in and takes it out, global_param holds the switch."""
