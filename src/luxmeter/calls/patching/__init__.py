"""Puts stand-ins in place of a framework's callables and takes them out, exactly."""
