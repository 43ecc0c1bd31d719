"""Python config files: read, overridden, checked, written out again; plug-ins; templates."""
