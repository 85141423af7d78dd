"""What all tests need of their process."""

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that: those of tests, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
