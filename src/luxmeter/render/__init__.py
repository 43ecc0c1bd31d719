"""Values -> terminal, HTML, SVG. Knows no source: it is given what to show and where."""
