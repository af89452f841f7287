"""Names for topics: by functions and commands of the user, saved with the model."""
