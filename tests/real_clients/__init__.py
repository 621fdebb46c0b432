"""Real, unchanged clients through the proxy, against the strict provider. They run where they are installed.

    pytest -m client tests/real_clients -s          prints a table
    python -m real_clients.report                    the same without pytest (PYTHONPATH=tests)

A client is found on PATH; recipes/clients.md says how each is installed.
"""
