"""How Sphinx builds the docs: `make docs`, and then docs/_build/html/index.html."""

project = "Pulsar Lakehouse"
author = "The Pulsar Lakehouse authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "decisions/template.md"]
html_theme = "furo"
html_title = project
html_show_sourcelink = False
html_show_copyright = False
myst_heading_anchors = 3
