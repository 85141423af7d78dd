"""Case files as pytest items: known findings are expected failures, gone ones are visible."""
