"""One script a schema revision, in order."""
