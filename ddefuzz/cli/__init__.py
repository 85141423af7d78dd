"""The command line. Each command or group of commands has a module with its name."""
