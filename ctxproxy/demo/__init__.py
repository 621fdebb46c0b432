"""The demo: an agent-like conversation with a real model server, first without ctxproxy, then through it."""
