"""Reports for other tools: one record of what a command did, and a table of formats to write it in."""
