"""The recipes, each run as a newcomer would run it, against the loopback provider."""
