"""What each stage of the compile stack makes of a program: graphs, guards, graph breaks, generated code."""
