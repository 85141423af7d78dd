"""What people see of a finding or a guard site, as text and records. The command line and the dashboard lay it out."""
