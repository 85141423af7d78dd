"""A finding or a guard site as text and records for people. The command line and the dashboard lay it out."""
