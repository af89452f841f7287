"""A service that scores texts with a fitted model, over HTTP."""
