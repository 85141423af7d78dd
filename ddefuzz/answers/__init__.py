"""What would mend a data-dependent error: the undecided guard answered each way, and what the capture then computes."""
