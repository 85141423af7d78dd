"""Programs, which are the test cases: immutable trees, their text form, and the construction of their inputs."""
