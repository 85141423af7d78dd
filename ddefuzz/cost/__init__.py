"""What unbacked sizes cost: compile time, kernels, run time and export time of a program or of the user's own code."""
