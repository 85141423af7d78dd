"""`python -m ddefuzz`, where the command is not on the path."""

from ddefuzz.cli.main import main

main()
