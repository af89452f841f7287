"""The command line, one module a command.

`main` is the entry point. Nothing imports this package.
"""
