"""The commands, a module each: `HELP`, `configure(parser)` and `run(arguments)`."""
