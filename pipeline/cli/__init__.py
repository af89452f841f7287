"""The command line, with one module for each command.

`main` is the entry point. Nothing imports this package.
"""
