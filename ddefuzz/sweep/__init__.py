"""Every op of the catalogue and of OpInfo, systematically; the census of what fails; upstream's list beside it."""
