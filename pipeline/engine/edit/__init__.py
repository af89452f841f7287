"""Edit the topics of a finished model: `edit` merges, deletes, splits and renames them."""
