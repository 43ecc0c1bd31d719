"""The front doors of the tools this one replaces: thin, no logic of their own."""
