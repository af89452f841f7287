"""The demo: a fit of the documentation of installed packages."""
