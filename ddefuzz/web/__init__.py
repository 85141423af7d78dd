"""The dashboard: a web server on the findings database. It never imports torch."""
