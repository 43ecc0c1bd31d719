"""Which callables of MindSpore are timed, and what each is called."""
