"""What a program may call."""
