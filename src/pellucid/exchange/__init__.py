"""Export to and import from the files of other projects."""
