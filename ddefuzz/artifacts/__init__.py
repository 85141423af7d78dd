"""The output of each stage of the compile stack for a program: graphs, guards, graph breaks, generated code."""
