"""Which callables of torch are timed, and what each is called."""
