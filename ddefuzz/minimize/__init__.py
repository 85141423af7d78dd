"""The minimizer: pure passes that propose smaller programs, a total order, and a driver that tests the candidates."""
