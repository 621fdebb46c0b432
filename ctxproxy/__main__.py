"""`python -m ctxproxy`."""

from ctxproxy.cli import main

main()
