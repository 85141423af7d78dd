"""Running one program: the stages, the worker they run in, and the pool of workers."""
